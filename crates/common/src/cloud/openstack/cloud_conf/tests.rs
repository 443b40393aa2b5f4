use super::*;
use crate::cloud::http::Trust;
use crate::cloud::openstack::catalog::Interface;
use crate::cloud::openstack::credentials::{Login, Owned};

fn owned(name: &str, owner: Owned) -> Owned {
    Owned::Name { name: name.to_owned(), owner: Box::new(owner) }
}

#[test]
fn what_a_cloud_controller_manager_has_is_enough() {
    let text = "[Global]\nauth-url=\"https://a:5000/v3\"\nusername=\"u\"\npassword=\"s3cr3t;#\"\ntenant-name=\"p\"\n\
        domain-name=\"Default\"\nregion=\"A\"\nos-endpoint-type=internal\ntls-insecure=false\n\
        [LoadBalancer]\nsubnet-id=1\n[LoadBalancerClass \"x\"]\nsubnet-id=2\n[Route]\nrouter-id=4711\n";
    let CloudConf { credentials, router_id } = CloudConf::parse(text).unwrap();
    assert_eq!(router_id.as_deref(), Some("4711"));
    let domain = || Owned::Domain("Default".to_owned());
    let login = Login::Password {
        user: owned("u", domain()),
        password: "s3cr3t;#".to_owned(),
        project: owned("p", domain()),
    };
    assert!(credentials.login == login, "{credentials:?}");
    assert_eq!(credentials.region.as_deref(), Some("A"));
    assert_eq!((credentials.interface, credentials.trust), (Interface::Internal, Trust::System));
    let conf = "[global]\nauth-url=https://a\napplication-credential-id=c\napplication-credential-secret=s\n\
        tls-insecure\n";
    let CloudConf { credentials, router_id } = CloudConf::parse(conf).unwrap();
    assert_eq!((credentials.trust, router_id), (Trust::InsecureSkipVerify, None));
    let credential = Owned::Id("c".to_owned());
    assert!(
        credentials.login
            == Login::ApplicationCredential { credential, secret: "s".to_owned(), project: None }
    );
}

#[test]
fn use_clouds_reads_a_clouds_yaml() {
    let clouds = "clouds:\n  a: {auth: {auth_url: https://a, token: t}}\n  b: {auth: {auth_url: https://b, token: t}}\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), clouds).unwrap();
    let text = format!(
        "[Global]\nuse-clouds=true\nclouds-file={}\ncloud=b\nregion=R\n[Route]\nrouter-id=1",
        file.path().display()
    );
    let conf = CloudConf::parse(&text).unwrap();
    assert_eq!(conf.credentials.auth_url, "https://b/v3");
    assert_eq!(conf.credentials.region.as_deref(), Some("R"));
    assert_eq!(conf.router_id.as_deref(), Some("1"));
}

#[test]
fn use_clouds_looks_in_the_usual_places_and_goes_behind_what_is_written_beside_it() {
    let clouds = "clouds: {a: {region_name: A, verify: false, auth: {auth_url: https://a, token: t}}}";
    let read = |path: &str| match path {
        "~/.config/openstack/clouds.yaml" => Ok(clouds.as_bytes().to_vec()),
        _ => Err(format!("{path} is not there")),
    };
    let text = "[Global]\nuse-clouds\ncloud=a\nauth-url=https://c\nos-endpoint-type=internal\n";
    let CloudConf { credentials, .. } = parse(text, None, None, &read).unwrap();
    assert_eq!((credentials.auth_url.as_str(), credentials.interface), ("https://c/v3", Interface::Internal));
    assert_eq!((credentials.region.as_deref(), credentials.trust), (Some("A"), Trust::InsecureSkipVerify));
    let error = parse(text, None, None, &|path| Err(format!("{path} is not there"))).unwrap_err();
    assert!(error.to_string().contains("clouds-file is not given"), "{error}");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let base = "[Global]\nauth-url=https://a\nuser-id=u\npassword=s3cr3t\ntenant-id=p\n";
    CloudConf::parse(base).unwrap();
    for (more, why) in [
        ("cert-file=/c", "[Global] cert-file is not supported"),
        ("key-file=/k", "[Global] key-file is not supported"),
        ("trust-id=t", "[Global] trust-id is not supported"),
        ("trustee-password=t", "[Global] trustee-password is not supported"),
        ("secret-name=s", "[Global] secret-name is not supported"),
        ("ca-file=/is/not/there", "[Global] ca-file: /is/not/there cannot be read"),
        ("tls-insecure=perhaps", "[Global] tls-insecure is neither true nor false"),
        ("password=", "password is missing"),
        ("password=\"s3cr3t", "line 6: a quote is not closed"),
    ] {
        let error = CloudConf::parse(&format!("{base}{more}\n")).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
    }
}
