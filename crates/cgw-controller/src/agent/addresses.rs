//! Watches the node's IPv4 addresses. keepalived moves a VIP before the annotations change, and the driver ends the connections that are
//! stale because of it.

use std::convert::Infallible;
use std::time::Duration;

use common::netlink::monitor::Event;
use ipnet::IpNet;

use super::trigger::Trigger;
use crate::monitor::Notifications;

/// After a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Records each change of an IPv4 address. Without notifications, the resync period shows them.
pub async fn watch(trigger: &Trigger) -> Infallible {
    let mut notifications = loop {
        match Notifications::open() {
            Ok(notifications) => break notifications,
            Err(error) => tracing::warn!("the node's addresses are not watched: {error:#}"),
        }
        tokio::time::sleep(PAUSE).await;
    };
    loop {
        match notifications.next().await {
            Ok(events) => {
                if events.iter().any(is_relevant) {
                    trigger.fire_node();
                }
            }
            Err(error) => {
                tracing::warn!("{error:#}");
                tokio::time::sleep(PAUSE).await;
                trigger.fire_node();
            }
        }
    }
}

fn is_relevant(event: &Event) -> bool {
    match event {
        Event::Address(address) => matches!(address.net, IpNet::V4(_)),
        Event::Lost => true,
        Event::Link => false,
    }
}
