//! Health checks over the private network, which is this machine's loopback interface here.

use std::time::{Duration, Instant};

use e2e::natgw::{Gateway, Responder, TestEnv};
use e2e::program::Program;

use super::{FIRST, SECOND};

/// Two gateways whose ports respond; the first is the primary.
struct Checked {
    env: TestEnv,
    natgw: Program,
    gateways: [Gateway; 2],
    ports: [Responder; 2],
}

async fn checked() -> Checked {
    let env = TestEnv::start_on_loopback().await.unwrap();
    let first = env.node(Some(FIRST)).await.unwrap();
    let one = Responder::start(first.private_ip, 0).unwrap();
    let port = one.port().unwrap();
    let settings = format!("healthCheck: {{enabled: true, interval: 1s, failures: 3, port: {port}}}");
    let natgw = env.natgw(&settings).unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();
    let second = env.node(Some(SECOND)).await.unwrap();
    let other = Responder::start(second.private_ip, port).unwrap();
    env.wait_for_setup(&second, SECOND).await.unwrap();
    let checked = Checked { env, natgw, gateways: [first, second], ports: [one, other] };
    checked.rounds("responded", 8.0).await;
    checked
}

impl Checked {
    /// Waits for more rounds of a gateway with this result.
    async fn rounds(&self, result: &str, more: f64) {
        let labels = [("target", "gateway"), ("result", result)];
        let count = async || {
            let metrics = self.natgw.metrics().await?;
            anyhow::Ok(metrics.sum("natgw_health_checks_total", &labels).unwrap_or_default())
        };
        let enough = count().await.unwrap() + more;
        self.env.wait("more health checks", || async { Ok(count().await? >= enough) }).await.unwrap();
    }
}

#[tokio::test]
async fn health_the_route_leaves_a_gateway_that_stops_responding_within_seconds_and_does_not_come_back() {
    let mut checked = checked().await;
    let since = Instant::now();
    checked.gateways[0].node.silence().await;
    checked.ports[0].silence().await.unwrap();
    let [first, second] = &checked.gateways;
    checked.env.wait_for_primary(second).await.unwrap();
    let took = since.elapsed();
    // Silent for longer, it would be NotReady, and no more unreachable.
    first.node.resume().await.unwrap();
    checked.env.wait_for_event("Node", &second.name, "GatewayUnreachable").await.unwrap();
    let event = checked.env.wait_for_event("Node", &first.name, "HealthCheckFailed").await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let unreachable = [("state", "unreachable")];
    checked.env.wait_for_metric(&checked.natgw, "natgw_nodes", &unreachable, 1.0).await.unwrap();
    println!("the route left a gateway that does not respond after {took:.1?}");
    // Without the checks, the route leaves it when its lease has not been renewed for 40 s.
    assert!(took < Duration::from_secs(40), "{took:?}");

    checked.ports[0].resume();
    checked.rounds("responded", 6.0).await;
    checked.env.reconciles(&checked.natgw, 2).await.unwrap();
    checked.env.wait_for_primary(&checked.gateways[1]).await.unwrap();
    let switches = checked.natgw.metrics().await.unwrap().sum("natgw_route_switches_total", &[]);
    assert_eq!(switches, Some(2.0));
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn health_a_leader_that_reaches_no_gateway_moves_nothing() {
    let mut checked = checked().await;
    // Without renewals of the Leases, so that the responses alone decide.
    for (gateway, port) in checked.gateways.iter().zip(&mut checked.ports) {
        gateway.node.silence().await;
        port.silence().await.unwrap();
    }
    let [first, _] = &checked.gateways;
    let event = checked.env.wait_for_event("Node", &first.name, "HealthCheckFailed").await.unwrap();
    assert!(event.note.unwrap().contains("may be cut off"));
    checked.rounds("silent", 4.0).await;
    checked.env.reconciles(&checked.natgw, 2).await.unwrap();
    assert_eq!(checked.env.route(), Some(first.private_ip.to_string()));
    let switches = checked.natgw.metrics().await.unwrap().sum("natgw_route_switches_total", &[]);
    assert_eq!(switches, Some(1.0));
}
