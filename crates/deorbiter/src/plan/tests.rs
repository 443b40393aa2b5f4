mod cases;
mod laws;
mod model;
mod world;
