//! The only writer: runs a plan's steps in order, and undoes what it did, in reverse, when one fails.
