mod model;
mod properties;
mod rivals;
mod rules;
mod world;
