use std::io::{Error, ErrorKind};

use super::*;
use crate::cloud::http::Trust;
use crate::cloud::openstack::catalog::Interface;
use crate::cloud::openstack::service::Service;

/// The credentials that the search finds with these variables and these files.
fn found(
    cloud: Option<&str>,
    variables: &[(&str, &str)],
    files: &[(&str, &str)],
) -> Result<Credentials, ConfigError> {
    let variable =
        |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let disk = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| Error::from(ErrorKind::NotFound))
    };
    find(cloud, &variable, &disk)
}

fn url(credentials: Result<Credentials, ConfigError>) -> String {
    credentials.unwrap().auth_url
}

fn file(url: &str) -> String {
    let auth = format!("auth: {{auth_url: \"https://{url}\", token: t}}");
    format!("clouds:\n  one: {{{auth}}}\n  openstack: {{{}}}\n", auth.replace(url, &format!("{url}-usual")))
}

const HOME: (&str, &str) = ("HOME", "/home/u");
const VARIABLES: [(&str, &str); 3] =
    [("OS_AUTH_URL", "https://env"), ("OS_TOKEN", "t"), ("OS_REGION_NAME", "")];

#[test]
fn files_are_searched_in_order() {
    let (named, here, home, etc) = (file("named"), file("here"), file("home"), file("etc"));
    let files = [
        ("/named", named.as_str()),
        ("./clouds.yml", &here),
        ("/home/u/.config/openstack/clouds.yaml", &home),
        ("/etc/openstack/clouds.yaml", &etc),
    ];
    let of = |variables: &[(&str, &str)], files: &[(&str, &str)]| url(found(Some("one"), variables, files));
    assert_eq!(of(&[HOME, ("OS_CLIENT_CONFIG_FILE", "/named")], &files), "https://named/v3");
    assert_eq!(of(&[HOME], &files), "https://here/v3");
    assert_eq!(of(&[HOME], &files[2..]), "https://home/v3");
    assert_eq!(of(&[], &files[2..]), "https://etc/v3");
    let error = found(None, &[("OS_CLIENT_CONFIG_FILE", "/none")], &files).unwrap_err();
    assert_eq!(error.place(), "/none", "a file that was named must be there: {error}");
    assert!(found(None, &[HOME], &[]).unwrap_err().to_string().contains("none found"));
}

#[test]
fn the_cloud_is_the_argument_then_os_cloud_then_the_variables() {
    let here = file("here");
    let files = [("./clouds.yaml", here.as_str())];
    let with = |more: &[(&'static str, &'static str)]| [&VARIABLES[..], more].concat();
    assert_eq!(url(found(Some("one"), &with(&[("OS_CLOUD", "other")]), &files)), "https://here/v3");
    assert_eq!(url(found(None, &with(&[("OS_CLOUD", "one")]), &files)), "https://here/v3");
    assert_eq!(url(found(None, &with(&[("OS_CLOUD", "envvars")]), &files)), "https://env/v3");
    assert_eq!(url(found(None, &with(&[("OS_CLOUD", "")]), &files)), "https://env/v3");
    assert_eq!(url(found(Some("envvars"), &VARIABLES, &files)), "https://env/v3");
    assert_eq!(url(found(None, &[], &files)), "https://here-usual/v3");
    assert!(found(Some("envvars"), &[], &files).unwrap_err().to_string().contains("auth_url is missing"));
}

#[test]
fn variables_may_be_about_one_service() {
    let more =
        [("OS_NETWORK_INTERFACE", "internal"), ("OS_VOLUME_REGION_NAME", "B"), ("OS_COMPUTE_INTERFACE", "")];
    let endpoint_overrides = found(None, &[&VARIABLES[..], &more].concat(), &[]).unwrap().endpoint_overrides;
    assert_eq!(endpoint_overrides.len(), 2);
    assert_eq!(endpoint_overrides[&Service::Network].interface, Some(Interface::Internal));
    assert_eq!(endpoint_overrides[&Service::BlockStorage].region.as_deref(), Some("B"));
}

#[test]
fn secure_yaml_is_found_beside() {
    let clouds = "clouds: {one: {auth: {auth_url: https://a}}}";
    let secure = "clouds: {one: {auth: {token: s3cr3t}}}";
    let home = "/home/u/.config/openstack/secure.yaml";
    let files = [("./clouds.yaml", clouds), (home, secure), ("/named", secure)];
    assert_eq!(found(None, &[HOME], &files).unwrap().login.secret(), "s3cr3t");
    let named = [("OS_CLIENT_SECURE_FILE", "/named")];
    assert_eq!(found(None, &named, &files).unwrap().login.secret(), "s3cr3t");
    assert!(found(None, &[], &files).is_err());
}

#[test]
fn a_profile_is_found_beside() {
    let clouds = "clouds: {one: {profile: ours, auth: {token: t}}}";
    let public = "public-clouds: {ours: {region_name: A, auth: {auth_url: https://ours}}}";
    let files =
        [("./clouds.yaml", clouds), ("/etc/openstack/clouds-public.yaml", public), ("/named", public)];
    assert_eq!(url(found(None, &[], &files)), "https://ours/v3");
    assert_eq!(
        url(found(None, &[("OS_CLIENT_VENDOR_FILE", "/named")], &[files[0], files[2]])),
        "https://ours/v3"
    );
    assert!(found(None, &[], &files[..1]).unwrap_err().to_string().contains("profile \"ours\""));
    let keys = secret(&[("clouds.yaml", clouds), ("clouds-public.yaml", public)]);
    assert_eq!(Credentials::from_secret(&keys, "", None).unwrap().region.as_deref(), Some("A"));
}

#[test]
fn variables_are_a_whole_cloud() {
    let pem = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    let files = [("/home/u/ca.pem", pem.as_str())];
    let of = |more: &[(&'static str, &'static str)]| {
        let base =
            [HOME, ("OS_AUTH_URL", "https://a/identity"), ("OS_USERNAME", "u"), ("OS_PASSWORD", "s3cr3t")];
        let scope = [("OS_USER_DOMAIN_NAME", "D"), ("OS_TENANT_NAME", "p")];
        found(None, &[&base[..], &scope, more].concat(), &files)
    };
    let credentials = of(&[("OS_REGION_NAME", "A"), ("OS_CACERT", "~/ca.pem")]).unwrap();
    assert_eq!(credentials.trust, Trust::Only(pem.clone().into_bytes()));
    assert_eq!(credentials.region.as_deref(), Some("A"));
    assert_eq!(
        of(&[("OS_INSECURE", "True"), ("OS_CACERT", "/none")]).unwrap().trust,
        Trust::InsecureSkipVerify
    );
    for (more, why) in [
        (("OS_CACERT", "/none"), "OS_CACERT: /none cannot be read"),
        (("OS_CERT", "/c"), "OS_CERT and OS_KEY"),
        (("OS_INSECURE", "perhaps"), "OS_INSECURE"),
        (("OS_IDENTITY_API_VERSION", "2.0"), "OS_IDENTITY_API_VERSION must be 3"),
        (("OS_AUTH_TYPE", "v3kerberos"), "auth_type \"v3kerberos\""),
    ] {
        let error = of(&[more]).unwrap_err();
        assert!(error.to_string().contains(why) && !format!("{error:?}").contains("s3cr3t"), "{error}");
    }
}

fn secret(keys: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    keys.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

#[test]
fn a_secret_is_as_cluster_api_has_it_or_a_cloud_conf() {
    let clouds = "clouds:\n  one:\n    region_name: A\n    cacert: /etc/ca.pem\n    auth: {auth_url: https://a, token: s3cr3t}\n";
    let pem = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    let whole = secret(&[("clouds.yaml", clouds), ("cacert", &pem)]);
    let of = |region| Credentials::from_secret(&whole, "one", region).unwrap();
    assert_eq!(of(None).region.as_deref(), Some("A"));
    assert_eq!(of(Some("B")).region.as_deref(), Some("B"));
    assert_eq!(of(None).trust, Trust::Only(pem.into_bytes()));
    assert_eq!(Credentials::from_secret(&whole, "", None).unwrap(), of(None));
    let conf = "[Global]\nauth-url=https://c\nuser-id=u\npassword=s3cr3t\ntenant-id=p\nregion=A\n";
    let conf = Credentials::from_secret(&secret(&[("cloud.conf", conf)]), "one", Some("B")).unwrap();
    assert_eq!((conf.auth_url.as_str(), conf.region.as_deref()), ("https://c/v3", Some("B")));
}

#[test]
fn a_secret_does_not_choose_what_we_read() {
    let clouds =
        "clouds: {one: {cacert: /etc/passwd, auth: {auth_url: https://a, token: s3cr3t}}}".to_owned();
    let conf = "[Global]\nauth-url=https://c\nuser-id=u\npassword=s3cr3t\ntenant-id=p\nca-file=/etc/passwd\n";
    let other = "[Global]\nuse-clouds=true\nclouds-file=/etc/openstack/clouds.yaml\n";
    let usual = "[Global]\nuse-clouds=true\n";
    for (key, text) in
        [("clouds.yaml", clouds.as_str()), ("cloud.conf", conf), ("cloud.conf", other), ("cloud.conf", usual)]
    {
        let error = Credentials::from_secret(&secret(&[(key, text)]), "one", None).unwrap_err();
        assert!(error.to_string().contains("no file is read for a Secret"), "{error}");
    }
}

#[test]
fn a_secret_without_a_credential_says_what_it_has() {
    let error = Credentials::from_secret(&secret(&[("password", "s3cr3t")]), "one", None).unwrap_err();
    assert!(error.to_string().ends_with("its keys are password"), "{error}");
    let garbage = BTreeMap::from([("clouds.yaml".to_owned(), vec![0xff])]);
    assert!(Credentials::from_secret(&garbage, "", None).unwrap_err().to_string().contains("UTF-8"));
}
