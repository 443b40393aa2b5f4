//! Rules one by one in `rules`; every history of a small env in `properties`.

mod env;
mod properties;
mod rules;
