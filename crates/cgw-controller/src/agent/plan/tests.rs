//! The rules, one by one and all together.

pub mod env;
mod properties;
mod rules;
mod sources;
