//! The formats that the roles exchange: addresses, entries of the stores, annotations of a Service, bodies of HTTP requests.
//! Parsing refuses what is not exactly in the format; nothing here does IO.

pub mod address;
pub mod http;
pub mod service;
pub mod stores;

pub use address::{Epoch, ParseError, TunId, TunMac, Vip, VipRange};
