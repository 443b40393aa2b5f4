//! The words by which clusters know us. Names that belong to others stay with the code that speaks to them.

/// Every label, annotation, finalizer, API group and field manager of ours ends in this.
pub const DOMAIN: &str = "perimeter.dev";

/// `<controller>.perimeter.dev`: the field manager of server-side apply, and the reporting controller of Events.
#[must_use]
pub fn field_manager(controller: &str) -> String {
    format!("{controller}.{DOMAIN}")
}

/// The label that says which program made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_manager_has_the_controller_and_the_domain() {
        assert_eq!(field_manager("natgw"), "natgw.perimeter.dev");
    }
}
