//! The rules, one by one and all together, in a simulated environment.

mod defects;
pub mod env;
pub mod health;
mod model;
mod own_defects;
mod properties;
mod rulings;
mod verification;
