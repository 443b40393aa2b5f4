//! Rules one by one in `rules`; every history of a small world in `properties`.

mod properties;
mod rules;
mod world;
