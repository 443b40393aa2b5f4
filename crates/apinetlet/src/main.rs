//! The program `apinetlet`; everything is in the library of the same name.

fn main() -> std::process::ExitCode {
    apinetlet::command::run()
}
