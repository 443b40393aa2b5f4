//! Every step, done and undone by the kernel.
