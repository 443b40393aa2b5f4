//! The program `egress-router`; everything is in the library `egress_router_cni`.

/// A call lives for a millisecond and needs little: memory is taken from the system in a few large pieces, and not given back
/// piece by piece.
#[global_allocator]
static MEMORY: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    egress_router_cni::program::run()
}
