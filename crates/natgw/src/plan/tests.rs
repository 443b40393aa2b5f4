//! The rules, one by one and all together, in a simulated environment.

mod defects;
mod env;
mod model;
mod properties;
mod rulings;
