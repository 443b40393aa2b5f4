//! Pure: the response to Cluster API, for a Cluster that is being deleted.
//!
//! The messages become a condition of the Cluster, so none contains a time or a count.

use common::api::deorbit_binding::PROTECT_ANNOTATION;

use super::super::snapshot::{Deorbit, End};
use super::cluster::Cluster;
use super::protocol::Response;
use crate::names;

/// The hook's action for one call of Cluster API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Respond with this.
    Respond(Response),
    /// Create the Deorbit of this name in the Cluster's namespace, and let the Cluster wait.
    Create(String),
    /// Delete the running Deorbit in the Cluster's namespace, which aborts it, and respond with this.
    Abort {
        /// Name of the Deorbit.
        name: String,
        /// Its UID: another one of its name is not deleted.
        uid: String,
        /// The response.
        response: Response,
    },
}

/// Decides. `deorbits` are those in the Cluster's namespace that have its UID or the name of its Deorbit.
#[must_use]
pub fn decide(cluster: &Cluster, deorbits: &[Deorbit]) -> Decision {
    let target = &cluster.object;
    let refuse = |why: String| Decision::Respond(Response::refuse(why));
    if !cluster.terminating {
        return refuse(format!("{target} is not being deleted: nothing is deorbited"));
    }
    match &cluster.infrastructure {
        Some(infrastructure) if infrastructure.is_openstack() => {}
        Some(other) => {
            let why =
                format!("its infrastructure is {}, not OpenStack's: deorbiter has nothing to do", other.kind);
            return Decision::Respond(Response::go_on(why));
        }
        None => {
            let why = "it has no infrastructure: deorbiter has nothing to do".to_owned();
            return Decision::Respond(Response::go_on(why));
        }
    }
    let name = names::deorbit(&target.name, &target.uid);
    let own = |one: &&Deorbit| one.name == name && one.target_uid.as_deref() == Some(target.uid.as_str());
    let found = deorbits.iter().find(own);
    if cluster.protected {
        let response = Response::refuse(format!(
            "annotation {PROTECT_ANNOTATION} protects {target}: it is not deorbited and stays; remove the annotation to have it deleted"
        ));
        // A running one would go on deleting.
        return match found.filter(|one| !one.terminating && one.end.is_none()) {
            Some(running) => {
                Decision::Abort { name: running.name.clone(), uid: running.uid.clone(), response }
            }
            None => Decision::Respond(response),
        };
    }
    let Some(deorbit) = found else {
        if deorbits.iter().any(|one| one.name == name) {
            return refuse(format!("a Deorbit {name} that was created for something else exists; delete it"));
        }
        return Decision::Create(name);
    };
    let id = format!("{}/{}", deorbit.namespace, deorbit.name);
    Decision::Respond(match (deorbit.terminating, deorbit.end) {
        (true, _) => Response::wait(format!("Deorbit {id} is being deleted; another one follows")),
        (false, None) => Response::wait(waiting(&id)),
        (false, Some(End::Complete)) => Response::go_on(format!("Deorbit {id} is complete")),
        (false, Some(End::CompletedWithDebris)) => Response::go_on(format!(
            "Deorbit {id} completed with debris: its status.debris lists what is left in OpenStack"
        )),
        (false, Some(End::Failed)) => Response::refuse(format!(
            "Deorbit {id} failed and keeps the cluster: see its status.debris; delete the Deorbit to retry"
        )),
    })
}

/// The message while a Deorbit runs.
#[must_use]
pub fn waiting(id: &str) -> String {
    format!("Deorbit {id} cleans up: kubectl get deorbit shows how far it is")
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshot::ObjectId;
    use super::super::cluster::{Infrastructure, OPENSTACK};
    use super::*;
    use crate::names::INFRASTRUCTURE_GROUP;

    fn cluster() -> Cluster {
        Cluster {
            object: ObjectId {
                api_version: "cluster.x-k8s.io/v1beta1",
                kind: "Cluster",
                namespace: Some("team".into()),
                name: "prod".into(),
                uid: "u".into(),
            },
            terminating: true,
            protected: false,
            infrastructure: Some(Infrastructure {
                group: INFRASTRUCTURE_GROUP.into(),
                version: None,
                kind: OPENSTACK.into(),
                name: "prod".into(),
            }),
        }
    }

    fn deorbit(end: Option<End>) -> Deorbit {
        Deorbit {
            namespace: "team".into(),
            name: names::deorbit("prod", "u"),
            uid: "d".into(),
            target_uid: Some("u".into()),
            spec: serde_json::from_value(serde_json::json!({ "inCluster": true })).unwrap(),
            terminating: false,
            end,
        }
    }

    fn response(cluster: &Cluster, deorbits: &[Deorbit]) -> (String, u64, String) {
        let Decision::Respond(response) = decide(cluster, deorbits) else { panic!("it acts") };
        let json = serde_json::to_value(response).unwrap();
        let text = |key: &str| json[key].as_str().unwrap().to_owned();
        (text("status"), json["retryAfterSeconds"].as_u64().unwrap(), text("message"))
    }

    #[test]
    fn a_cluster_waits_for_its_deorbit() {
        assert_eq!(decide(&cluster(), &[]), Decision::Create(names::deorbit("prod", "u")));
        let (status, retry, _) = response(&cluster(), &[deorbit(None)]);
        assert!(status == "Success" && retry > 0);
        let (status, retry, _) =
            response(&cluster(), &[Deorbit { terminating: true, ..deorbit(Some(End::Complete)) }]);
        assert!(status == "Success" && retry > 0, "an aborted one proves nothing");
        assert_eq!(response(&cluster(), &[deorbit(Some(End::Complete))]).1, 0);
        let (status, retry, text) = response(&cluster(), &[deorbit(Some(End::CompletedWithDebris))]);
        assert!(status == "Success" && retry == 0 && text.contains("debris"));
    }

    #[test]
    fn a_deletion_that_must_not_go_on_is_refused_with_the_reason() {
        let refused = |cluster: &Cluster, deorbits: &[Deorbit]| {
            let (status, _, text) = response(cluster, deorbits);
            assert_eq!(status, "Failure");
            text
        };
        assert!(refused(&Cluster { terminating: false, ..cluster() }, &[]).contains("not being deleted"));
        let protected = Cluster { protected: true, ..cluster() };
        assert!(refused(&protected, &[]).contains(PROTECT_ANNOTATION));
        assert!(refused(&cluster(), &[deorbit(Some(End::Failed))]).contains("failed"));
        let strange = Deorbit { target_uid: None, ..deorbit(Some(End::Complete)) };
        assert!(refused(&cluster(), &[strange]).contains("something else"));
    }

    #[test]
    fn a_running_deorbit_is_aborted_when_its_cluster_is_protected() {
        let protected = Cluster { protected: true, ..cluster() };
        let Decision::Abort { name, uid, response } = decide(&protected, &[deorbit(None)]) else {
            panic!("it goes on deleting")
        };
        assert_eq!((name, uid), (names::deorbit("prod", "u"), "d".to_owned()));
        assert_eq!(
            decide(&protected, &[]),
            Decision::Respond(response.clone()),
            "the text is the same afterwards"
        );
        let aborted = Deorbit { terminating: true, ..deorbit(None) };
        let strange = Deorbit { target_uid: None, ..deorbit(None) };
        for other in [aborted, strange, deorbit(Some(End::Complete)), deorbit(Some(End::Failed))] {
            assert_eq!(decide(&protected, &[other]), Decision::Respond(response.clone()));
        }
    }

    #[test]
    fn clusters_outside_openstack_are_not_delayed() {
        let mut elsewhere = cluster();
        elsewhere.infrastructure.as_mut().unwrap().kind = "AWSCluster".into();
        assert_eq!(response(&elsewhere, &[]).0, "Success");
        assert_eq!(response(&Cluster { infrastructure: None, ..cluster() }, &[]).1, 0);
    }
}
