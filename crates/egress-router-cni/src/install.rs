//! How the program gets onto a node: `egress-router install`.
