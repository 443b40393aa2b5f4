//! The objects for Kubernetes and prometheus-operator.

use e2e::assets;
use e2e::control_plane::ControlPlane;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};

use super::component::Component;
use super::{CONTROLLERS, run};

struct Kubectl<'a>(&'a ControlPlane);

impl Kubectl<'_> {
    /// Standard output, or standard error where it fails.
    fn run(&self, args: &[&str], input: &str) -> Result<String, String> {
        let kubeconfig = format!("--kubeconfig={}", self.0.kubeconfig().display());
        let args: Vec<&str> = [kubeconfig.as_str()].into_iter().chain(args.iter().copied()).collect();
        let output = run(&assets::kubectl().unwrap(), &args, input);
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }

    fn would_apply(&self, yaml: &str) -> Result<String, String> {
        self.run(&["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"], yaml)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_prometheus_operator_accepts_everything_and_no_misspelt_field() {
    let control_plane = ControlPlane::builder().without_controllers().start().await.unwrap();
    let kubectl = Kubectl(&control_plane);
    let definitions = assets::monitoring().unwrap();
    for kind in ["podmonitors", "prometheusrules"] {
        let file = definitions.join(format!("{kind}.yaml"));
        // Server-side, because they are too large for the annotation of a client-side apply.
        kubectl.run(&["apply", "--server-side", "-f", file.to_str().unwrap()], "").unwrap();
        let definition = format!("crd/{kind}.monitoring.coreos.com");
        kubectl.run(&["wait", "--for=condition=Established", "--timeout=600s", &definition], "").unwrap();
    }
    let namespaces = Api::<Namespace>::all(control_plane.client());
    for controller in CONTROLLERS {
        let component = Component::of(controller);
        let metadata = ObjectMeta { name: Some(controller.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let output = kubectl.would_apply(&component.yaml).unwrap();
        for kind in ["podmonitor", "prometheusrule"] {
            assert!(
                output.contains(&format!("{kind}.monitoring.coreos.com/{controller} serverside-applied")),
                "{output}"
            );
        }
    }
    // The server checks the fields of each component in the same way.
    let component = Component::of(CONTROLLERS[0]);
    for (field, misspelt) in [("scrapeTimeout:", "scrapTimeout:"), ("alert: ", "alarm: ")] {
        assert!(component.yaml.contains(field));
        let why = kubectl.would_apply(&component.yaml.replacen(field, misspelt, 1)).unwrap_err();
        assert!(why.contains(misspelt.trim_end_matches([':', ' '])), "{why}");
    }
}

#[test]
fn the_pod_monitor_finds_the_pods_and_their_port() {
    for controller in CONTROLLERS {
        let component = Component::of(controller);
        if controller == "cgw-controller" {
            // It has a PodMonitor for each role.
            continue;
        }
        let (monitor, deployment) = (component.only("PodMonitor"), component.only("Deployment"));
        assert_eq!(monitor["metadata"]["namespace"], deployment["metadata"]["namespace"]);
        let pod = &deployment["spec"]["template"];
        let expected = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        assert!(!expected.is_empty());
        for (label, value) in expected {
            assert_eq!(pod["metadata"]["labels"][label], *value, "{label}");
        }
        let job = monitor["spec"]["jobLabel"].as_str().unwrap();
        assert_eq!(pod["metadata"]["labels"][job], controller, "the rules ask for job={controller:?}");
        let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array().unwrap();
        assert_eq!(endpoints.len(), 1);
        assert_eq!(endpoints[0]["path"], "/metrics");
        let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|port| port["name"] == endpoints[0]["port"]), "{ports:?}");
    }
}

#[test]
fn each_role_of_cgw_controller_has_a_pod_monitor_with_a_job_of_its_own() {
    let component = Component::of("cgw-controller");
    for role in ["controller", "keeper", "agent"] {
        let monitor = component
            .of_kind("PodMonitor")
            .find(|one| one["metadata"]["name"] == format!("cgw-{role}"))
            .unwrap();
        let spec = &monitor["spec"];
        let labels = &spec["selector"]["matchLabels"];
        assert_eq!(labels["app.kubernetes.io/component"], role);
        let endpoint = &spec["podMetricsEndpoints"][0];
        assert_eq!((&endpoint["port"], &endpoint["path"]), (&"admin".into(), &"/metrics".into()));
        let job = endpoint["relabelings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["targetLabel"] == "job")
            .unwrap();
        assert_eq!(job["replacement"], format!("cgw-{role}"));
    }
}
