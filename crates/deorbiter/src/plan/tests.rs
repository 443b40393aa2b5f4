mod cases;
mod endings;
mod env;
mod ingresses;
mod laws;
mod model;
mod ownership;
mod proofs;
