//! The program `natgw`; everything is in the library of the same name.

fn main() -> std::process::ExitCode {
    natgw::command::run()
}
