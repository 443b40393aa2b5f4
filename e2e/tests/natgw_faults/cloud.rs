//! The cloud answers wrongly, late or not at all: one fault for each run of the story.

use std::time::Duration;

use e2e::fault_proxy::{Answer, Fault, Matcher};
use e2e::hetzner::{self, ActionFailure, Code, Injection};
use futures::{StreamExt as _, stream};
use http::Method;

use crate::natgw_faults::scene::Scene;
use crate::natgw_faults::story;

/// As in the crash tests.
const AT_ONCE: usize = 8;

/// Where a fault comes from.
enum Cause {
    /// What lies between.
    Network(Matcher, Fault),
    /// The API itself.
    Api(&'static str, usize, Code),
    /// The API itself, after it has acted or not.
    Answer(Injection),
    /// An action that was accepted, and fails.
    Action(ActionFailure),
}

fn faults() -> Vec<(&'static str, Cause)> {
    const ADD: &str = "/networks/*/actions/add_route";
    const DELETE: &str = "/networks/*/actions/delete_route";
    let add = || Matcher::any().path("*/actions/add_route");
    let delete = || Matcher::any().path("*/actions/delete_route");
    let lists = || Matcher::any().method(Method::GET).path("*/networks*");
    let network = Cause::Network;
    vec![
        ("429 on add_route", network(add().times(2), Fault::Reject(Answer::too_many_requests(1)))),
        // Only what is asked for labels is needed of them.
        (
            "no list of floating IPs",
            network(
                Matcher::any().method(Method::GET).path("*/floating_ips*").times(10_000),
                Fault::Reject(Answer::internal()),
            ),
        ),
        ("429 on lists", network(lists().times(2), Fault::Reject(Answer::too_many_requests(1)))),
        ("500 before add_route", network(add().times(2), Fault::Reject(Answer::internal()))),
        ("500 after add_route", network(add().times(2), Fault::Replace(Answer::internal()))),
        ("503 before add_route", network(add().times(2), Fault::Reject(Answer::unavailable()))),
        ("503 after add_route", network(add().times(2), Fault::Replace(Answer::unavailable()))),
        ("500 before delete_route", network(delete().times(2), Fault::Reject(Answer::internal()))),
        ("500 after delete_route", network(delete().times(2), Fault::Replace(Answer::internal()))),
        ("503 before delete_route", network(delete().times(2), Fault::Reject(Answer::unavailable()))),
        ("503 after delete_route", network(delete().times(2), Fault::Replace(Answer::unavailable()))),
        ("no answer to an accepted add_route", network(add().times(2), Fault::Swallow)),
        ("no answer to an accepted delete_route", network(delete().times(2), Fault::Swallow)),
        ("the network cut in the middle", network(lists().times(3), Fault::CutResponse { after_bytes: 60 })),
        ("late answers", network(lists().times(5), Fault::DelayResponse(Duration::from_millis(700)))),
        ("locked on add_route", Cause::Api(ADD, 2, Code::Locked)),
        ("locked on delete_route", Cause::Api(DELETE, 2, Code::Locked)),
        ("conflict on add_route", Cause::Api(ADD, 2, Code::Conflict)),
        ("conflict on delete_route", Cause::Api(DELETE, 2, Code::Conflict)),
        ("rate limit on add_route", Cause::Api(ADD, 1, Code::RateLimitExceeded)),
        (
            "a gateway's error page after add_route",
            Cause::Answer(Injection::new("POST", ADD, hetzner::Answer::Page(502)).after_acting()),
        ),
        ("add_route fails", Cause::Action(ActionFailure::of("add_route"))),
        (
            "add_route says that it failed, and did not",
            Cause::Action(ActionFailure::of("add_route").acting()),
        ),
        ("delete_route fails", Cause::Action(ActionFailure::of("delete_route"))),
        (
            "delete_route says that it failed, and did not",
            Cause::Action(ActionFailure::of("delete_route").acting()),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_the_cloud_leads_to_the_same_end() {
    let scene = Scene::start().await;
    let expected = &story::play(&scene, "undisturbed").await;
    drop(scene);
    let runs: Vec<()> = stream::iter(faults())
        .map(|(scenario, cause)| async move {
            let scene = Scene::start().await;
            let (env, mut rule) = (&scene.env, None);
            match cause {
                Cause::Network(matcher, fault) => rule = Some(env.cloud_proxy.rule(matcher, fault)),
                Cause::Api(path, times, code) => env.hetzner.refuse("POST", path, times, code),
                Cause::Answer(injection) => env.hetzner.inject(injection),
                Cause::Action(failure) => env.hetzner.fail_action(failure),
            }
            assert_eq!(*expected, story::play(&scene, scenario).await, "{scenario}");
            assert!(
                rule.is_none_or(|rule| env.cloud_proxy.applied(rule) > 0),
                "{scenario}: it never happened"
            );
            assert_eq!(env.hetzner.injections_left(), 0, "{scenario}: it never happened");
            let history = env.hetzner.route_history(env.network);
            let hops: Vec<String> =
                history.iter().map(|each| each.gateway.map_or("none".into(), |ip| ip.to_string())).collect();
            println!("cloud, {scenario}: same end; the route was {}", hops.join(", "));
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    println!("{} faults of the cloud", runs.len());
}
