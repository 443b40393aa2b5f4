use proptest::prelude::*;

use super::*;
use crate::cloud::http::Trust;
use crate::cloud::openstack::catalog::Interface;
use crate::cloud::openstack::credentials::{Login, Owned};
use crate::cloud::openstack::service::Service;

/// A cloud `x` with these fields beside `auth`, and these in `auth`.
fn cloud(fields: &str, auth: &str) -> String {
    let indent = |text: &str, by: &str| {
        text.lines().map(|line| format!("{by}{}\n", line.trim_start())).collect::<String>()
    };
    format!("clouds:\n  x:\n{}    auth:\n{}", indent(fields, "    "), indent(auth, "      "))
}

fn read(text: &str) -> Result<Credentials, ConfigError> {
    Credentials::from_clouds_yaml(text, None, None)
}

const CREDENTIAL: &str =
    "auth_url: https://a:5000\napplication_credential_id: c\napplication_credential_secret: s3cr3t";
const PASSWORD: &str =
    "auth_url: https://a:5000\nusername: u\npassword: s3cr3t\nuser_domain_name: D\nproject_name: p";

#[test]
fn an_auth_url_has_its_version_or_not() {
    for (url, base) in [
        ("https://a:5000", "https://a:5000/v3"),
        ("https://a:5000/", "https://a:5000/v3"),
        ("https://a:5000/v3", "https://a:5000/v3"),
        ("https://a:5000/v3/", "https://a:5000/v3"),
        ("https://a/identity", "https://a/identity/v3"),
        ("https://a/identity/v3/", "https://a/identity/v3"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000/v3"),
    ] {
        let text = cloud("", &CREDENTIAL.replace("https://a:5000", url));
        assert_eq!(read(&text).unwrap().auth_url, base, "{url}");
    }
    for url in ["https://a:5000/v2.0", "http://openstack.example.com:5000", "a:5000", "https://u:s3cr3t@a"] {
        let error = read(&cloud("", &CREDENTIAL.replace("https://a:5000", url))).unwrap_err().to_string();
        assert!(error.contains("auth_url") && !error.contains("s3cr3t"), "{error}");
    }
}

#[test]
fn the_way_to_log_in_is_said_or_follows_from_the_fields() {
    let id = |id: &str| Owned::Id(id.to_owned());
    let named = |name: &str, owner| Owned::Name { name: name.to_owned(), owner: Box::new(owner) };
    let domain = || Owned::Domain("D".to_owned());
    let secret = || "s3cr3t".to_owned();
    let user = || named("u", domain());
    for (fields, auth, login) in [
        (
            "",
            CREDENTIAL.to_owned(),
            Login::ApplicationCredential { credential: id("c"), secret: secret(), project: None },
        ),
        (
            "auth_type: v3applicationcredential",
            format!("{CREDENTIAL}\nproject_id: 0012345\nusername: someone"),
            Login::ApplicationCredential {
                credential: id("c"),
                secret: secret(),
                project: Some("0012345".to_owned()),
            },
        ),
        (
            "",
            CREDENTIAL.replace("credential_id", "credential_name") + "\nusername: u\nuser_domain_name: D",
            Login::ApplicationCredential { credential: named("c", user()), secret: secret(), project: None },
        ),
        (
            "",
            CREDENTIAL.replace("credential_id", "credential_name") + "\nuser_id: 1e9",
            Login::ApplicationCredential {
                credential: named("c", id("1e9")),
                secret: secret(),
                project: None,
            },
        ),
        (
            "auth_type: password",
            PASSWORD.to_owned(),
            Login::Password { user: user(), password: secret(), project: named("p", domain()) },
        ),
        (
            "",
            "auth_url: https://a\nuser_id: u\npassword: 0123\ntenant_id: p".to_owned(),
            Login::Password { user: id("u"), password: "0123".to_owned(), project: id("p") },
        ),
        (
            "auth_type: v3password",
            "auth_url: https://a\nusername: u\npassword: s3cr3t\ndefault_domain: d\nproject_name: p\nproject_domain_id: e"
                .to_owned(),
            Login::Password {
                user: named("u", id("d")),
                password: secret(),
                project: named("p", id("e")),
            },
        ),
        (
            "auth_type: token",
            "auth_url: https://a\ntoken: s3cr3t\nproject_id: p".to_owned(),
            Login::Token { token: secret(), project: Some(id("p")) },
        ),
        ("", "auth_url: https://a\ntoken: s3cr3t".to_owned(), Login::Token { token: secret(), project: None }),
    ] {
        let text = cloud(fields, &auth);
        let credentials = read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(credentials.login == login, "{:?} instead of {login:?}", credentials.login);
        assert!(!format!("{credentials:?}").contains("s3cr3t"), "{credentials:?}");
    }
}

#[test]
fn what_is_missing_or_not_supported_is_named() {
    let without = |field: &str| {
        let kept = PASSWORD.lines().filter(|line| !line.starts_with(field));
        kept.collect::<Vec<_>>().join("\n")
    };
    for (fields, auth, why) in [
        ("", without("auth_url"), "auth_url is missing"),
        ("", without("username"), "user_id, or username"),
        ("", without("password"), "password is missing"),
        ("", without("user_domain"), "user_domain_id or user_domain_name is missing"),
        ("", without("project_name"), "project_id or project_name is missing"),
        ("", without("project_name") + "\nproject_name: ''", "project_id or project_name is missing"),
        ("", CREDENTIAL.replace("credential_secret", "x"), "application_credential_secret is missing"),
        ("auth_type: v3applicationcredential", PASSWORD.to_owned(), "application_credential_id is missing"),
        ("auth_type: v3oidcpassword", PASSWORD.to_owned(), "auth_type \"v3oidcpassword\" is not supported"),
        ("auth_type: v2password", PASSWORD.to_owned(), "auth_type \"v2password\" is not supported"),
        ("", format!("{PASSWORD}\ntrust_id: t"), "trust_id is not supported"),
        ("", format!("{PASSWORD}\nsystem_scope: all"), "system_scope is not supported"),
        ("profile: vexxhost", PASSWORD.to_owned(), "profile \"vexxhost\" is in no clouds-public.yaml"),
        ("cert: /c.pem\nkey: /k.pem", PASSWORD.to_owned(), "client certificates are not supported"),
        ("identity_api_version: 2", PASSWORD.to_owned(), "identity_api_version must be 3"),
        ("identity_endpoint_override: https://i", PASSWORD.to_owned(), "identity_endpoint_override is not"),
        (
            "volumev2_endpoint_override: https://a/v2/p",
            PASSWORD.to_owned(),
            "volumev2_endpoint_override: it is",
        ),
        ("compute_interface: secret", PASSWORD.to_owned(), "compute_interface \"secret\" is unknown"),
        ("interface: secret", PASSWORD.to_owned(), "interface \"secret\" is unknown"),
        ("regions: [A, B]", PASSWORD.to_owned(), "name one of the regions A, B"),
        (
            "regions: [{name: A, values: {interface: internal, verify: false}}]",
            PASSWORD.to_owned(),
            "write interface, verify into the cloud itself",
        ),
        ("cacert: /is/not/there.pem", PASSWORD.to_owned(), "cacert: /is/not/there.pem cannot be read"),
    ] {
        let text = cloud(fields, &auth);
        let error = read(&text).unwrap_err();
        assert!(error.to_string().contains(why), "{error}\n{text}");
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
        assert_eq!(error.place(), "clouds.yaml: cloud \"x\"");
    }
}

#[test]
fn region_interface_and_trust() {
    let with = |fields: &str| read(&cloud(fields, PASSWORD)).unwrap();
    let plain = with("");
    assert_eq!((plain.region, plain.interface, plain.trust), (None, Interface::Public, Trust::System));
    assert_eq!(with("region_name: A\nregions: [A, B]").region.as_deref(), Some("A"));
    assert_eq!(with("regions: [A]").region.as_deref(), Some("A"));
    assert_eq!(with("regions: [{name: A, values: {}}]").region.as_deref(), Some("A"));
    let others = "region_name: B\nregions: [{name: A, values: {interface: internal}}, B]";
    assert_eq!(with(others).region.as_deref(), Some("B"));
    assert_eq!(with("interface: internal").interface, Interface::Internal);
    assert_eq!(with("endpoint_type: adminURL").interface, Interface::Admin);
    for off in ["verify: false", "insecure: true", "verify: false\ncacert: /is/not/there.pem"] {
        assert_eq!(with(off).trust, Trust::InsecureSkipVerify);
    }
    assert_eq!(with("verify: true").trust, Trust::System);
    let pem = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &pem).unwrap();
    let own = with(&format!("cacert: {}", file.path().display()));
    assert_eq!(own.trust, Trust::Only(pem.into_bytes()));
    std::fs::write(file.path(), "no PEM").unwrap();
    let error = read(&cloud(&format!("cacert: {}", file.path().display()), PASSWORD)).unwrap_err();
    assert!(error.to_string().contains("hold no certificate"), "{error}");
}

#[test]
fn of_several_regions_one_is_named() {
    let with = |fields: &str, auth: &str, region: Option<&str>| {
        let text = cloud(fields, auth);
        let texts = Texts { place: "clouds.yaml", clouds: &text, secure: None, public: None };
        parse(&texts, None, region, None, &|_| Err("no file".into()))
    };
    for several in ["region_name: [A, B]", "region_name: A,B", "region_name: 'A, B'"] {
        let error = with(several, PASSWORD, None).unwrap_err().to_string();
        assert!(error.contains("name one of the regions A, B"), "{error}");
        assert_eq!(with(several, PASSWORD, Some("B")).unwrap().region.as_deref(), Some("B"));
    }
    for (one, region) in [
        ("[A]", Some("A")),
        ("1", Some("1")),
        ("1.0", Some("1.0")),
        ("no", Some("no")),
        ("''", None),
        ("", None),
        ("[]", None),
    ] {
        let read = with(&format!("region_name: {one}"), PASSWORD, None).unwrap();
        assert_eq!(read.region.as_deref(), region, "{one}");
    }
    assert_eq!(with("region-name: A", PASSWORD, None).unwrap().region.as_deref(), Some("A"));
    assert!(with("region_name: {a: b}", PASSWORD, None).is_err());
    let open = PASSWORD.replace("https://a:5000", "https://{region_name}.a:5000/v3");
    assert_eq!(with("region_name: Kna1", &open, None).unwrap().auth_url, "https://Kna1.a:5000/v3");
    let error = with("", &open, None).unwrap_err().to_string();
    assert!(error.contains("no region is named"), "{error}");
    // Fields of a region that are for other programs do not affect the login.
    let networks =
        "regions: [{name: A, values: {networks: [{name: n, routes_externally: true}], dns_api_version: 2}}]";
    assert_eq!(with(networks, PASSWORD, Some("A")).unwrap().region.as_deref(), Some("A"));
    for values in ["region-name: B", "compute_endpoint_override: https://c", "auth: {username: v}"] {
        let fields = format!("regions: [{{name: A, values: {{{values}}}}}]");
        assert!(with(&fields, PASSWORD, None).unwrap_err().to_string().contains("into the cloud itself"));
    }
}

#[test]
fn other_clouds_of_the_file_are_ignored() {
    let odd =
        "  odd: {verify: 1, interface: [internal, public], auth: [none], regions: 7, region_name: {a: b}}\n";
    let text = cloud("", PASSWORD) + odd + "  list: [a]\n  nothing:\n";
    let secure = format!("clouds:\n{odd}  x:\n    auth: {{password: other}}\n");
    let read = Credentials::from_clouds_yaml(&text, Some(&secure), Some("x")).unwrap();
    assert_eq!(read.login.secret(), "other");
    assert!(Credentials::from_clouds_yaml(&text, None, Some("odd")).is_err());
}

#[test]
fn the_cloud_is_named_or_the_only_one_or_openstack() {
    let of = |names: &[&str]| {
        let clouds: String = names
            .iter()
            .map(|name| {
                format!(
                    "  {name}:\n    region_name: of-{name}\n    auth: {{auth_url: https://a, token: t}}\n"
                )
            })
            .collect();
        format!("clouds:\n{clouds}")
    };
    let chosen = |names: &[&str], cloud| {
        Credentials::from_clouds_yaml(&of(names), None, cloud).map(|credentials| credentials.region)
    };
    assert_eq!(chosen(&["a"], None).unwrap().unwrap(), "of-a");
    assert_eq!(chosen(&["a", "b"], Some("b")).unwrap().unwrap(), "of-b");
    assert_eq!(chosen(&["a", "openstack"], None).unwrap().unwrap(), "of-openstack");
    let error = chosen(&["a", "b"], None).unwrap_err().to_string();
    assert!(error.contains("name the cloud to use; it has a, b"), "{error}");
    let error = chosen(&["a", "b"], Some("c")).unwrap_err().to_string();
    assert!(error.contains("has no cloud \"c\"; it has a, b"), "{error}");
    for empty in ["clouds:\n", "{}", "clouds: {}"] {
        assert!(read(empty).unwrap_err().to_string().contains("it has none"));
    }
}

#[test]
fn a_cloud_lies_over_its_profile() {
    let clouds = "clouds:\n  x:\n    profile: ours\n    region_name: B\n    auth: {token: s3cr3t}\n";
    let public = "public-clouds:\n  ours:\n    region_name: A\n    interface: internal\n    auth: {auth_url: https://a, token: no}\n";
    let read = |public| {
        let texts = Texts {
            place: "clouds.yaml",
            clouds,
            secure: None,
            public: Some(("clouds-public.yaml", public)),
        };
        parse(&texts, None, None, None, &|_| Err("no file".to_owned()))
    };
    let whole = read(public).unwrap();
    assert_eq!((whole.region.as_deref(), whole.interface), (Some("B"), Interface::Internal));
    assert_eq!((whole.auth_url.as_str(), whole.login.secret()), ("https://a/v3", "s3cr3t"));
    assert!(read("public-clouds: {}").unwrap_err().to_string().contains("profile \"ours\" is in no"));
    let error = read("public-clouds: s3cr3t").unwrap_err();
    assert!(error.place() == "clouds-public.yaml" && !format!("{error:?}").contains("s3cr3t"), "{error:?}");
}

/// As openstacksdk has them, with either of its spellings.
#[test]
fn single_services_may_be_reached_in_another_way() {
    let text = cloud(
        "region_name: A\nnetwork_region_name: 0123\nload-balancer_interface: internal\ncompute-region-name: C\n\
         volume_endpoint_override: https://v/v3/%(project_id)s\nidentity_interface: admin\nnetwork_api_version: 2",
        PASSWORD,
    );
    let secure = "clouds: {x: {compute_region_name: D}}";
    let endpoint_overrides =
        Credentials::from_clouds_yaml(&text, Some(secure), None).unwrap().endpoint_overrides;
    let of = |service| endpoint_overrides[&service].clone();
    assert_eq!(
        (of(Service::Network).region.as_deref(), of(Service::Network).interface),
        (Some("0123"), None)
    );
    assert_eq!(of(Service::Compute).region.as_deref(), Some("D"), "secure.yaml lies over it");
    assert_eq!(of(Service::LoadBalancer).interface, Some(Interface::Internal));
    assert_eq!(of(Service::BlockStorage).url.as_deref(), Some("https://v/v3/%(project_id)s"));
    assert!(
        read(&cloud("network_interface: ''\ncompute_region_name:", PASSWORD))
            .unwrap()
            .endpoint_overrides
            .is_empty()
    );
}

/// As openstacksdk has it: a user's domain and a project go before those in `auth`, all else only where `auth` has none.
#[test]
fn a_login_may_stand_beside_auth_and_have_hyphens() {
    let login = |fields: &str, auth: &str| read(&cloud(fields, auth)).map(|read| (read.login, read.region));
    let both = login("", PASSWORD).unwrap();
    let without = |lines: &[&str]| {
        let kept = PASSWORD.lines().filter(|line| !lines.iter().any(|one| line.starts_with(one)));
        kept.collect::<Vec<_>>().join("\n")
    };
    for (fields, auth) in [
        ("user_domain_name: D\nproject_name: p", without(&["user_domain", "project"])),
        ("user-domain-name: D\ntenant-name: p", without(&["user_domain", "project"])),
        (
            "username: u\npassword: s3cr3t\nauth_url: https://a:5000",
            without(&["username", "password", "auth"]),
        ),
        ("user_domain_name: D\nproject_name: p", PASSWORD.replace(": D", ": E").replace(": p", ": q")),
        ("username: other\npassword: other", PASSWORD.to_owned()),
        ("project_name:\nuser_domain_name: ''", PASSWORD.to_owned()),
        ("", PASSWORD.replace('_', "-")),
        ("auth-type: v3password", PASSWORD.to_owned()),
        ("auth_plugin: password", PASSWORD.to_owned()),
    ] {
        assert_eq!(login(fields, &auth), Ok(both.clone()), "{fields} {auth}");
    }
    assert_eq!(login("region-name: A", PASSWORD).unwrap().1.as_deref(), Some("A"));
    let token = Login::Token { token: "s3cr3t".to_owned(), project: None };
    assert_eq!(login("token: s3cr3t", "auth_url: https://a").unwrap().0, token);
    assert_eq!(login("auth-type: v3token", "auth_url: https://a\nauth-token: s3cr3t").unwrap().0, token);
    for (fields, why) in [
        ("trust-id: t", "trust_id is not supported"),
        ("system_scope: all", "system_scope is not supported"),
        ("auth-type: v3kerberos", "auth_type \"v3kerberos\""),
        ("identity-api-version: 2", "identity_api_version must be 3"),
        ("region_name: A\nregion-name: B", "this is no YAML, or a field"),
    ] {
        let error = login(fields, PASSWORD).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("s3cr3t"), "{fields}: {error}");
    }
    let secure = "clouds:\n  x:\n    password: s3cr3t\n    project-name: p\n";
    let clouds = cloud("", &without(&["password", "project"]));
    assert_eq!(Credentials::from_clouds_yaml(&clouds, Some(secure), None).unwrap().login, both.0);
}

#[test]
fn what_is_written_once_may_be_merged_in() {
    let text = "base: &base\n  region_name: A\n  auth: &auth {auth_url: https://a, project_id: p, user_id: u}\nclouds:\n  \
                x:\n    <<: *base\n    auth:\n      <<: *auth\n      password: s3cr3t\n";
    let merged = read(text).unwrap();
    assert_eq!((merged.region.as_deref(), merged.login.secret()), (Some("A"), "s3cr3t"));
}

#[test]
fn secure_yaml_lies_over_it() {
    let clouds =
        cloud("region_name: A", "auth_url: https://a\nusername: u\nuser_domain_id: d\nproject_id: p");
    let secure = "clouds:\n  x:\n    region_name: B\n    auth:\n      password: s3cr3t\n  other:\n    auth: {password: no}\n";
    let both = Credentials::from_clouds_yaml(&clouds, Some(secure), None).unwrap();
    assert_eq!(both.region.as_deref(), Some("B"));
    assert_eq!(both.login.secret(), "s3cr3t");
    assert!(read(&clouds).unwrap_err().to_string().contains("password is missing"));
    let error = Credentials::from_clouds_yaml(&clouds, Some("clouds: s3cr3t"), None).unwrap_err();
    assert_eq!(error.place(), "secure.yaml");
    assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
}

#[test]
fn broken_yaml_names_a_line_and_shows_nothing() {
    for text in [
        "clouds:\n  x:\n    auth: {password: s3cr3t\n",
        "clouds:\n  x:\n    auth: [s3cr3t]\n",
        "clouds:\n  x:\n    verify: s3cr3t\n",
        "s3cr3t",
        "clouds: [s3cr3t]",
        "\t- s3cr3t: *s3cr3t",
    ] {
        let error = read(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
        assert!(error.to_string().contains("this is no YAML"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), auth in "([a-z_]{0,8}[:\\-\\[{&*!|>'\" \n]){0,12}") {
        drop(read(&text));
        drop(read(&cloud("", &auth)));
    }
}
