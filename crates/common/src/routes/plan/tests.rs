mod model;
mod properties;
mod rules;
mod world;
