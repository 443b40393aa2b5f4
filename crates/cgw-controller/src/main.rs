//! The program `cgw`; everything is in the library of this crate.

fn main() -> std::process::ExitCode {
    cgw_controller::command::run()
}
