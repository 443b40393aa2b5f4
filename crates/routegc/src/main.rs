//! The program `routegc`; everything is in the library of the same name.

fn main() -> std::process::ExitCode {
    routegc::command::run()
}
