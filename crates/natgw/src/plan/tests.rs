//! The rules, one by one and all together, in a simulated environment.

mod defects;
mod env;
mod health;
mod model;
mod own_defects;
mod properties;
mod rulings;
