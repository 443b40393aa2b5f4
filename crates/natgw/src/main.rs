//! Begun.
fn main() {}
