//! The state of keepalived's VRRP instance, as the lines of its notify FIFO report it.

use jiff::Timestamp;

use crate::api::http::VrrpState;

/// A state and when the instance entered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vrrp {
    /// The state.
    pub state: VrrpState,
    /// Milliseconds since 1970.
    pub since: u64,
}

impl Vrrp {
    /// The instance enters the state now.
    #[must_use]
    pub fn now(state: VrrpState) -> Vrrp {
        Vrrp { state, since: u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default() }
    }
}

/// The state in a line such as `INSTANCE "cgw_51" MASTER 150`, if it is about the instance. None for other lines: keepalived also
/// writes about groups and priorities.
#[must_use]
pub fn parse(line: &str, instance: &str) -> Option<VrrpState> {
    let rest = line.strip_prefix("INSTANCE \"")?;
    let (name, rest) = rest.split_once("\" ")?;
    if name != instance {
        return None;
    }
    match rest.split(' ').next()? {
        "MASTER" => Some(VrrpState::Master),
        "BACKUP" => Some(VrrpState::Backup),
        "FAULT" => Some(VrrpState::Fault),
        "STOP" | "DELETED" => Some(VrrpState::Init),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_keepalived_are_read() {
        for (line, state) in [
            ("INSTANCE \"cgw_51\" MASTER 150", Some(VrrpState::Master)),
            ("INSTANCE \"cgw_51\" BACKUP 150", Some(VrrpState::Backup)),
            ("INSTANCE \"cgw_51\" FAULT 0", Some(VrrpState::Fault)),
            ("INSTANCE \"cgw_51\" STOP 150", Some(VrrpState::Init)),
            ("INSTANCE \"cgw_51\" MASTER_RX_LOWER_PRI 150", None),
            ("INSTANCE \"cgw_5\" MASTER 150", None),
            ("GROUP \"cgw_51\" MASTER 0", None),
            ("", None),
        ] {
            assert_eq!(parse(line, "cgw_51"), state, "{line}");
        }
        // Metrics and log lines have the word of keepalived.
        assert_eq!(VrrpState::Master.to_string(), "MASTER");
    }

    proptest! {
        #[test]
        fn no_line_causes_a_panic(line: String) {
            let _ = parse(&line, "cgw_51");
        }
    }
}
