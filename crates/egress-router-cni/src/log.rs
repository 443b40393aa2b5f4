//! The original's log: `log_file`, `log_level`. It never makes a call fail.
