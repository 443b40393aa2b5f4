//! The login of a Kluster of Kubernikus: each field is a key of the Secret `<kluster>-secret`.

use super::clouds_yaml::filled;
use super::credentials::{ConfigError, Credentials, Fields};

/// The key that each such Secret has.
pub(super) const AUTH_URL: &str = "openstack-auth-url";

/// `text`: the value of a key, if the Secret has it.
pub(super) fn parse<'a>(
    text: &dyn Fn(&str) -> Result<Option<&'a str>, ConfigError>,
    region: Option<&str>,
    authorities: Option<&[u8]>,
) -> Result<Credentials, ConfigError> {
    // Kubernikus writes a key with an empty value for a field that it does not know.
    let value =
        |key: &str| -> Result<Option<String>, ConfigError> { Ok(filled(text(key)?.map(str::to_owned))) };
    let fields = Fields {
        auth_url: value(AUTH_URL)?,
        username: value("openstack-username")?,
        password: value("openstack-password")?,
        user_domain_id: value("openstack-user-domain-id")?,
        user_domain_name: value("openstack-domain-name")?,
        project_id: value("openstack-project-id")?,
        project_name: value("openstack-project-name")?,
        project_domain_id: value("openstack-project-domain-id")?,
        project_domain_name: value("openstack-project-domain-name")?,
        region: match region {
            Some(region) => Some(region.to_owned()),
            None => value("openstack-region")?,
        },
        authorities: authorities.map(<[u8]>::to_owned),
        ..Fields::default()
    };
    fields.check("the keys of Kubernikus")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::credentials::{Login, Owned};
    use super::*;

    fn secret(changes: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let all = [
            (AUTH_URL, "https://identity.example.com/v3"),
            ("openstack-region", "north"),
            ("openstack-username", "kubernikus-prod"),
            ("openstack-domain-name", "Default"),
            ("openstack-password", "s3cr3t"),
            ("openstack-project-id", "4711"),
            ("openstack-project-name", ""),
            ("openstack-project-domain-name", "customers"),
            ("tls-ca.pem", "-----BEGIN CERTIFICATE-----"),
        ];
        all.iter().chain(changes).map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn the_secret_of_a_kluster_is_a_login() {
        let read = |region| Credentials::from_secret(&secret(&[]), "any", region).unwrap();
        let credentials = read(None);
        assert_eq!(credentials.auth_url, "https://identity.example.com/v3");
        assert_eq!(credentials.region.as_deref(), Some("north"));
        assert_eq!(read(Some("south")).region.as_deref(), Some("south"));
        let Login::Password { user, password, project } = &credentials.login else {
            panic!("{credentials:?}")
        };
        let owner = Box::new(Owned::Domain("Default".to_owned()));
        assert_eq!(*user, Owned::Name { name: "kubernikus-prod".to_owned(), owner });
        assert_eq!((password.as_str(), project), ("s3cr3t", &Owned::Id("4711".to_owned())));
        assert!(!format!("{credentials:?}").contains("s3cr3t"));
    }

    #[test]
    fn a_clouds_yaml_in_the_same_secret_has_precedence() {
        let clouds = "clouds: {one: {auth: {auth_url: https://other, token: t}}}";
        let credentials = Credentials::from_secret(&secret(&[("clouds.yaml", clouds)]), "", None).unwrap();
        assert_eq!(credentials.auth_url, "https://other/v3");
    }

    #[test]
    fn an_error_names_the_field_and_no_value() {
        for (change, why) in [
            (("openstack-password", ""), "password is missing"),
            (("openstack-username", ""), "username"),
            (("openstack-project-id", ""), "project_id or project_name is missing"),
            (("openstack-domain-name", ""), "user_domain_name is missing"),
            ((AUTH_URL, "identity"), "auth_url"),
        ] {
            let error = Credentials::from_secret(&secret(&[change]), "", None).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains("Kubernikus") && text.contains(why) && !text.contains("s3cr3t"), "{text}");
        }
        let mut garbage = secret(&[]);
        garbage.insert("openstack-password".to_owned(), vec![0xff]);
        let error = Credentials::from_secret(&garbage, "", None).unwrap_err();
        assert!(error.to_string().contains("key openstack-password: is no text in UTF-8"), "{error}");
    }
}
