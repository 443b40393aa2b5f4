//! Pure: what a Cluster that is being deleted is told.
//!
//! The texts become a condition of the Cluster, so none holds a time or a count.

use super::super::deorbit_name::deorbit_name;
use super::super::snapshot::{Deorbit, End};
use super::cluster::Cluster;
use super::protocol::Response;
use common::api::deorbit_binding::PROTECT_ANNOTATION;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Say this.
    Say(Response),
    /// Make the Deorbit of this name in the Cluster's namespace, then let it wait.
    Create(String),
    /// Delete the Deorbit that runs in the Cluster's namespace, which aborts it, then say this.
    Abort {
        /// Name of the Deorbit.
        name: String,
        /// Its UID: another of its name is not meant.
        uid: String,
        /// What is said.
        response: Response,
    },
}

/// Decides. `deorbits` are those of the Cluster's namespace that are its own or have the name of its own.
#[must_use]
pub fn answer(cluster: &Cluster, deorbits: &[Deorbit]) -> Answer {
    let target = &cluster.object;
    let refuse = |why: String| Answer::Say(Response::refuse(why));
    if !cluster.terminating {
        return refuse(format!("{target} is not being deleted: nothing is deorbited"));
    }
    match &cluster.infrastructure {
        Some(infrastructure) if infrastructure.is_openstack() => {}
        Some(other) => {
            let why =
                format!("its infrastructure is {}, not OpenStack's: deorbiter has nothing to do", other.kind);
            return Answer::Say(Response::go_on(why));
        }
        None => {
            let why = "it has no infrastructure: deorbiter has nothing to do".to_owned();
            return Answer::Say(Response::go_on(why));
        }
    }
    let name = deorbit_name(&target.name, &target.uid);
    let own = |one: &&Deorbit| one.target_uid.as_deref() == Some(target.uid.as_str());
    let found = deorbits.iter().filter(own).max_by_key(|one| one.name == name);
    if cluster.protected {
        let response = Response::refuse(format!(
            "annotation {PROTECT_ANNOTATION} protects {target}: it is not deorbited and stays; remove the annotation to let it go"
        ));
        // One that runs would go on deleting.
        return match found.filter(|one| !one.terminating && one.end.is_none()) {
            Some(running) => Answer::Abort { name: running.name.clone(), uid: running.uid.clone(), response },
            None => Answer::Say(response),
        };
    }
    let Some(deorbit) = found else {
        if deorbits.iter().any(|one| one.name == name) {
            return refuse(format!(
                "a Deorbit {name} that was made for something else is in its place; delete it"
            ));
        }
        return Answer::Create(name);
    };
    let id = format!("{}/{}", deorbit.namespace, deorbit.name);
    Answer::Say(match (deorbit.terminating, deorbit.end) {
        (true, _) => Response::wait(format!("Deorbit {id} is being deleted; another one follows")),
        (false, None) => Response::wait(waiting(&id)),
        (false, Some(End::Complete)) => Response::go_on(format!("Deorbit {id} is complete")),
        (false, Some(End::CompletedWithDebris)) => Response::go_on(format!(
            "Deorbit {id} completed with debris: its status.debris lists what is left in OpenStack"
        )),
        (false, Some(End::Failed)) => Response::refuse(format!(
            "Deorbit {id} failed and keeps the cluster: see its status.debris; delete the Deorbit to have it tried again"
        )),
    })
}

/// What is said while a Deorbit runs.
#[must_use]
pub fn waiting(id: &str) -> String {
    format!("Deorbit {id} cleans up: kubectl get deorbit shows how far it is")
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshot::ObjectId;
    use super::super::cluster::{INFRASTRUCTURE_GROUP, Infrastructure, OPENSTACK};
    use super::*;

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
            name: deorbit_name("prod", "u"),
            uid: "d".into(),
            target_uid: Some("u".into()),
            terminating: false,
            end,
        }
    }

    fn said(cluster: &Cluster, deorbits: &[Deorbit]) -> (String, u64, String) {
        let Answer::Say(response) = answer(cluster, deorbits) else { panic!("it acts") };
        let json = serde_json::to_value(response).unwrap();
        let text = |key: &str| json[key].as_str().unwrap().to_owned();
        (text("status"), json["retryAfterSeconds"].as_u64().unwrap(), text("message"))
    }

    #[test]
    fn a_cluster_waits_for_its_deorbit() {
        assert_eq!(answer(&cluster(), &[]), Answer::Create(deorbit_name("prod", "u")));
        let (status, retry, _) = said(&cluster(), &[deorbit(None)]);
        assert!(status == "Success" && retry > 0);
        let (status, retry, _) =
            said(&cluster(), &[Deorbit { terminating: true, ..deorbit(Some(End::Complete)) }]);
        assert!(status == "Success" && retry > 0, "an aborted one proves nothing");
        assert_eq!(said(&cluster(), &[deorbit(Some(End::Complete))]).1, 0);
        let (status, retry, text) = said(&cluster(), &[deorbit(Some(End::CompletedWithDebris))]);
        assert!(status == "Success" && retry == 0 && text.contains("debris"));
    }

    #[test]
    fn what_must_not_go_on_is_refused_with_its_reason() {
        let refused = |cluster: &Cluster, deorbits: &[Deorbit]| {
            let (status, _, text) = said(cluster, deorbits);
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
    fn a_deorbit_that_runs_is_aborted_once_its_cluster_is_protected() {
        let protected = Cluster { protected: true, ..cluster() };
        let Answer::Abort { name, uid, response } = answer(&protected, &[deorbit(None)]) else {
            panic!("it goes on deleting")
        };
        assert_eq!((name, uid), (deorbit_name("prod", "u"), "d".to_owned()));
        assert_eq!(answer(&protected, &[]), Answer::Say(response.clone()), "the text is the same afterwards");
        let aborted = Deorbit { terminating: true, ..deorbit(None) };
        let strange = Deorbit { target_uid: None, ..deorbit(None) };
        for other in [aborted, strange, deorbit(Some(End::Complete)), deorbit(Some(End::Failed))] {
            assert_eq!(answer(&protected, &[other]), Answer::Say(response.clone()));
        }
    }

    #[test]
    fn clusters_elsewhere_are_not_held_up() {
        let mut elsewhere = cluster();
        elsewhere.infrastructure.as_mut().unwrap().kind = "AWSCluster".into();
        assert_eq!(said(&elsewhere, &[]).0, "Success");
        assert_eq!(said(&Cluster { infrastructure: None, ..cluster() }, &[]).1, 0);
    }
}
