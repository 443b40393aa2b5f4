//! The rules, one by one and all together.

mod env;
mod properties;
mod rules;
