mod cases;
mod endings;
mod laws;
mod model;
mod ownership;
mod world;
