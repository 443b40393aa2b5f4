//! The rules, one by one and all together, in a simulated world.

mod defects;
mod model;
mod properties;
mod rulings;
mod world;
