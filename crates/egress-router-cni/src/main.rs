//! The program `egress-router`; everything is in the library `egress_router_cni`.

/// A call runs for a millisecond and needs little memory: the allocator takes a few large pieces from the system and never returns
/// any.
#[global_allocator]
static MEMORY: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    egress_router_cni::program::run()
}
