//! The program `egress-router`; everything is in the library `egress_router_cni`.

fn main() -> std::process::ExitCode {
    egress_router_cni::program::run()
}
