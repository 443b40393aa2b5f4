mod cases;
mod endings;
mod ingresses;
mod laws;
mod model;
mod ownership;
mod proofs;
mod world;
