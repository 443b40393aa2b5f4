//! Which machine a Node's `spec.providerID` names.

/// What Hetzner's cloud controller manager writes into `spec.providerID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// `hcloud://4711`: a cloud server, by its ID.
    Cloud(u64),
    /// `hrobot://321`, formerly `hcloud://bm-321`: a dedicated server, by its number. It can be no route's gateway.
    Robot(u64),
    /// Empty, another cloud's, or not readable.
    Foreign,
}

impl ProviderId {
    /// Never fails: what is not Hetzner's is foreign.
    #[must_use]
    pub fn parse(id: &str) -> ProviderId {
        // The old form of a dedicated server begins as a cloud server's does, so it is tried first.
        let robot = id.strip_prefix("hcloud://bm-").or_else(|| id.strip_prefix("hrobot://"));
        let found = match robot {
            Some(number) => parse(number).map(ProviderId::Robot),
            None => id.strip_prefix("hcloud://").and_then(parse).map(ProviderId::Cloud),
        };
        found.unwrap_or(ProviderId::Foreign)
    }
}

/// Digits only: `u64::from_str` would take a plus sign too.
fn parse(number: &str) -> Option<u64> {
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_and_the_rest() {
        for (id, is) in [
            ("hcloud://4711", ProviderId::Cloud(4711)),
            ("hrobot://321", ProviderId::Robot(321)),
            ("hcloud://bm-321", ProviderId::Robot(321)),
            ("", ProviderId::Foreign),
            ("hcloud://", ProviderId::Foreign),
            ("hcloud://bm-", ProviderId::Foreign),
            ("hcloud://+1", ProviderId::Foreign),
            ("hcloud://4711/", ProviderId::Foreign),
            ("hcloud://99999999999999999999", ProviderId::Foreign),
            ("aws:///eu-central-1a/i-0123", ProviderId::Foreign),
            ("kind://docker/kind/kind-control-plane", ProviderId::Foreign),
        ] {
            assert_eq!(ProviderId::parse(id), is, "{id}");
        }
    }
}
