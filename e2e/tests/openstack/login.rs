//! Tokens and application credentials.

use std::time::Duration;

use e2e::openstack::{Knobs, OpenStack, Parts, Release, Service};
use http::{Method, StatusCode};
use serde_json::json;

use super::on_each_release;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn an_unknown_credential_is_not_found_and_a_wrong_secret_unauthorized() {
    on_each_release(async |_, cloud| {
        let project = cloud.project("login").await.unwrap();
        project.credential_api().new_token().await.unwrap();
        let keystone = cloud.endpoints().base(Service::Identity).unwrap();
        assert!(project.clouds_yaml().unwrap().contains(&keystone));
        let login = async |id: &str, secret: &str| {
            let body = json!({ "auth": { "identity": { "methods": ["application_credential"],
                "application_credential": { "id": id, "secret": secret } } } });
            let response =
                project.api().send(Method::POST, Service::Identity, "/auth/tokens", &[], Some(&body));
            response.await.unwrap().status
        };
        assert_eq!(login(&project.credential, &project.secret).await, StatusCode::CREATED);
        assert_eq!(login(&project.credential, "wrong").await, StatusCode::UNAUTHORIZED);
        assert_eq!(login("00000000000000000000000000000000", "wrong").await, StatusCode::NOT_FOUND);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn every_service_refuses_an_expired_token() {
    let knobs = Knobs { token_ttl: Duration::from_secs(60), token_cache: None, ..Knobs::default() };
    let cloud = OpenStack::start(Parts::KeystoneNeutron, Release::Main, knobs).await.unwrap();
    let project = cloud.project("expiry").await.unwrap();
    let token = project.api().new_token().await.unwrap();
    let headers = [("x-auth-token", token.as_str())];
    let list = async || {
        let response = project.api().send(Method::GET, Service::Network, "/routers", &headers, None);
        response.await.unwrap()
    };
    assert_eq!(list().await.status, StatusCode::OK);
    let ended = e2e::wait::until("the token's end", async || {
        let response = list().await;
        Ok((response.status != StatusCode::OK).then_some(response))
    });
    let ended = ended.await.unwrap();
    assert_eq!(ended.status, StatusCode::UNAUTHORIZED);
    let keystone = cloud.endpoints().address(Service::Identity).unwrap();
    let challenge = ended.headers.get("www-authenticate").unwrap().to_str().unwrap();
    assert_eq!(challenge, format!("Keystone uri=\"{keystone}/v3\""));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn concurrently_created_projects_are_complete() {
    let cloud = OpenStack::shared(Parts::KeystoneNeutron, Release::Main).await.unwrap();
    let made = futures::future::join_all((0..8).map(|_| cloud.project("at-once"))).await;
    for project in made {
        let project = project.unwrap();
        project
            .credential_api()
            .get(Service::Network, &format!("/routers/{}", project.router))
            .await
            .unwrap();
    }
}
