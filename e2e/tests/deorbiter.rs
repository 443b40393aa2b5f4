//! deorbiter on a real control plane and against real OpenStack services. Tests that begin with `d` and a number are about a
//! defect of the original, numbered as in the project's notes.

mod cloud;
mod cluster;
mod refusals;
mod rights;
