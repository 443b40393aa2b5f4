//! The program `deorbiter`; everything is in the library of the same name.

fn main() -> std::process::ExitCode {
    deorbiter::command::run()
}
