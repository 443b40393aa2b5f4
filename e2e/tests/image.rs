//! The container images, built by a local engine: small, static, non-root, and without unneeded files. A program starts in an empty root, and
//! verifies the TLS of a cloud with the CA bundle of the image.

mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use e2e::natgw::{TestEnv, run, wait_for};
use e2e::program::{Launch, Program};
use serde_json::{Value, json};
use tempfile::TempDir;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Maximum compressed size of an image, in bytes.
const LARGEST: u64 = 12_000_000;
/// The same for cgw-keeper, which has Debian's programs.
const LARGEST_KEEPER: u64 = 24_000_000;
/// Maximum size of the plugin's program, which is copied to each node and read by each call.
const LARGEST_PLUGIN: u64 = 2_500_000;
const BUNDLE: &str = "etc/ssl/certs/ca-certificates.crt";

/// An image and its expected properties.
struct Delivered {
    name: &'static str,
    program: &'static str,
    entrypoint: &'static [&'static str],
    /// Symbolic links to the program.
    links: &'static [&'static str],
    description: &'static str,
    image: OnceLock<Image>,
}

static NATGW: Delivered = Delivered {
    name: "natgw",
    program: "natgw",
    entrypoint: &["/natgw"],
    links: &[],
    description: "One primary NAT-gateway Node per cluster; the private network's default route follows it",
    image: OnceLock::new(),
};
static PLUGIN: Delivered = Delivered {
    name: "egress-router-cni",
    program: "egress-router",
    entrypoint: &["/egress-router", "install"],
    links: &[],
    description: "CNI plugin: gives a pod a static, cluster-external egress interface",
    image: OnceLock::new(),
};
static ROUTEGC: Delivered = Delivered {
    name: "routegc",
    program: "routegc",
    entrypoint: &["/routegc"],
    links: &[],
    description: "Removes router routes whose next hop no longer exists",
    image: OnceLock::new(),
};
static DEORBITER: Delivered = Delivered {
    name: "deorbiter",
    program: "deorbiter",
    entrypoint: &["/deorbiter"],
    links: &[],
    description: "Before a cluster is deleted: deletes what it created in the cloud, and verifies that it is gone",
    image: OnceLock::new(),
};
static APINETLET: Delivered = Delivered {
    name: "apinetlet",
    program: "apinetlet",
    entrypoint: &["/apinetlet"],
    links: &["manager"],
    description: "Maps the networking API of one cluster onto the network control plane of another",
    image: OnceLock::new(),
};
static CGW: Delivered = Delivered {
    name: "cgw-controller",
    program: "cgw",
    entrypoint: &["/cgw"],
    links: &[],
    description: "Centralized SNAT gateway: the VIP of a Service is its ingress and its egress address",
    image: OnceLock::new(),
};
/// The same program with Debian's; only its own test knows its size and its files.
static KEEPER: Delivered = Delivered {
    name: "cgw-keeper",
    program: "cgw",
    entrypoint: &["/cgw"],
    links: &[],
    description: "Centralized SNAT gateway: the VIP of a Service is its ingress and its egress address",
    image: OnceLock::new(),
};
static ALL: [&Delivered; 6] = [&NATGW, &PLUGIN, &ROUTEGC, &DEORBITER, &APINETLET, &CGW];

/// The image, unpacked.
struct Image {
    archive: PathBuf,
    config: Value,
    root: PathBuf,
    _folder: TempDir,
}

/// The files of apinetlet's image.
pub fn apinetlet() -> &'static Path {
    &APINETLET.image().root
}

impl Delivered {
    /// Builds it unless it exists, and unpacks it once.
    fn image(&self) -> &Image {
        self.image.get_or_init(|| unpacked(archive(self.name)))
    }
}

fn unpacked(archive: PathBuf) -> Image {
    let folder = tempfile::tempdir().unwrap();
    let (layout, root) = (folder.path().join("layout"), folder.path().join("root"));
    for path in [&layout, &root] {
        std::fs::create_dir(path).unwrap();
    }
    output(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&layout));
    let blob = |descriptor: &Value| {
        layout.join("blobs").join(descriptor["digest"].as_str().unwrap().replace(':', "/"))
    };
    let index = read(&layout.join("index.json"));
    let manifest = read(&blob(&index["manifests"][0]));
    for layer in manifest["layers"].as_array().unwrap() {
        output(Command::new("tar").arg("-xzf").arg(blob(layer)).arg("-C").arg(&root));
    }
    Image { archive, config: read(&blob(&manifest["config"])), root, _folder: folder }
}

/// The archive of `make images`.
fn archive(name: &str) -> PathBuf {
    let mut command = Command::new(Path::new(REPOSITORY).join("scripts/images.sh"));
    // Without cargo's variables of this test, which would make cargo build dependencies again.
    command.arg(name).env_clear().stderr(Stdio::inherit());
    command.envs(std::env::vars_os().filter(|(key, _)| key.to_string_lossy().starts_with("CC_")));
    for key in ["PATH", "HOME", "TMPDIR", "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR", "ENGINE"] {
        command.envs(std::env::var_os(key).map(|value| (key, value)));
    }
    String::from_utf8(output(&mut command)).unwrap().trim_end().into()
}

fn output(command: &mut Command) -> Vec<u8> {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}; it says why above", output.status);
    output.stdout
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn git(arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(REPOSITORY).args(arguments);
    String::from_utf8(output(&mut command)).unwrap().trim_end().to_owned()
}

/// Runs a program in a root with only the image.
fn in_root(delivered: &Delivered, root: &Path) -> Launch {
    started_in_root(delivered, root, delivered.program)
}

/// Runs a file of the root.
fn started_in_root(delivered: &Delivered, root: &Path, file: &str) -> Launch {
    // A user namespace allows chroot without root.
    Program::at("/usr/bin/unshare")
        .name(delivered.program)
        .args(["--map-root-user", "--root"])
        .arg(root)
        .args(["--wd", "/", "--"])
        .arg(format!("/{file}"))
}

#[test]
#[ignore = "full: release images"]
fn they_are_small_and_run_as_nonroot() {
    for delivered in ALL {
        let image = delivered.image();
        let size = std::fs::metadata(&image.archive).unwrap().len();
        println!("{}: {size} bytes to download", delivered.name);
        assert!(size <= LARGEST, "{size} bytes");

        let config = &image.config["config"];
        assert_eq!(config["User"], "65532:65532");
        assert_eq!(config["Entrypoint"], json!(delivered.entrypoint));
        assert!(config.get("Cmd").is_none_or(Value::is_null));
        let changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
        let revision = git(&["rev-parse", "HEAD"]) + if changed { "-dirty" } else { "" };
        let labels: BTreeMap<&str, &str> = BTreeMap::from([
            ("title", delivered.name),
            ("description", delivered.description),
            ("version", env!("CARGO_PKG_VERSION")),
            ("revision", &revision),
            ("source", "https://github.com/perimeter-dev/perimeter"),
            ("licenses", "Apache-2.0"),
        ]);
        for (key, value) in labels {
            assert_eq!(config["Labels"][format!("org.opencontainers.image.{key}")], value, "{key}");
        }
        // The time of the commit, so that builds are reproducible.
        let created: jiff::Timestamp = image.config["created"].as_str().unwrap().parse().unwrap();
        assert_eq!(created.as_second().to_string(), git(&["log", "-1", "--format=%ct"]));
        let machine = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        assert_eq!((&image.config["os"], &image.config["architecture"]), (&json!("linux"), &json!(machine)));
    }
}

#[test]
#[ignore = "full: release images"]
fn they_contain_only_the_program_the_licence_and_the_bundle() {
    for delivered in ALL {
        let root = &delivered.image().root;
        let listed =
            output(Command::new("find").arg(root).args(["!", "-type", "d", "-printf", "%P %m %y\n"]));
        let listed = String::from_utf8(listed).unwrap();
        let files: BTreeSet<&str> = listed.lines().collect();
        let (bundle, program) = (format!("{BUNDLE} 644 f"), format!("{} 755 f", delivered.program));
        let links: Vec<String> = delivered.links.iter().map(|link| format!("{link} 777 l")).collect();
        let mut expected = BTreeSet::from([program.as_str(), "LICENSE 644 f", bundle.as_str()]);
        expected.extend(links.iter().map(String::as_str));
        assert_eq!(files, expected);
        let licence = |folder: &Path| std::fs::read_to_string(folder.join("LICENSE")).unwrap();
        assert_eq!(licence(root), licence(Path::new(REPOSITORY)));
        let certificates = std::fs::read_to_string(root.join(BUNDLE)).unwrap();
        assert!(certificates.matches("BEGIN CERTIFICATE").count() > 50);
    }
}

#[test]
#[ignore = "full: release images"]
fn the_programs_ask_for_no_interpreter() {
    for delivered in ALL {
        let program = std::fs::read(delivered.image().root.join(delivered.program)).unwrap();
        assert_eq!(program[..5], *b"\x7fELF\x02", "64-bit ELF");
        let number = |at: usize, bytes: usize| {
            program[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
        };
        // e_phoff, e_phentsize, e_phnum of the file's header; p_type is the first word of a program header.
        let (table, entry, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
        assert!(count > 0);
        const INTERPRETER: usize = 3;
        assert!((0..count).all(|index| number(table + index * entry, 4) != INTERPRETER));
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_str().unwrap();
        assert!(!String::from_utf8_lossy(&program).contains(checkout), "a path of this machine");
    }
}

#[tokio::test]
#[ignore = "full: release images"]
async fn each_controller_starts_in_an_empty_root_and_prints_its_version_and_revision() {
    let script = Path::new(REPOSITORY).join("scripts/revision.sh");
    let revision = String::from_utf8(output(&mut Command::new(script))).unwrap();
    for delivered in [&NATGW, &ROUTEGC, &DEORBITER, &APINETLET, &CGW, &KEEPER] {
        for file in [delivered.program].iter().chain(delivered.links) {
            let launch = started_in_root(delivered, &delivered.image().root, file);
            let (code, output) = run(&launch.arg("--version")).await.unwrap();
            assert_eq!(code, 0, "{output}");
            let start = format!("{} {}", delivered.program, env!("CARGO_PKG_VERSION"));
            assert!(output.starts_with(&start) && output.contains(revision.trim_end()), "{output}");
        }
    }
}

/// Each of Debian's programs finds its libraries in the image, and the image is small enough for a node that fails over.
#[tokio::test]
#[ignore = "full: release images"]
async fn the_keepers_image_runs_keepalived_iptables_and_open_vswitchs_tools() {
    let image = KEEPER.image();
    let size = std::fs::metadata(&image.archive).unwrap().len();
    println!("cgw-keeper: {size} bytes to download");
    assert!(size <= LARGEST_KEEPER, "{size} bytes");
    let config = &image.config["config"];
    assert_eq!((&config["User"], &config["Entrypoint"]), (&json!("0:0"), &json!(["/cgw"])));
    for (file, expected) in [
        ("usr/sbin/keepalived", "Keepalived v"),
        ("usr/bin/ovs-vsctl", "ovs-vsctl (Open vSwitch)"),
        ("usr/bin/ovs-ofctl", "ovs-ofctl (Open vSwitch)"),
        ("usr/sbin/iptables-restore", "iptables-restore v1"),
        ("usr/sbin/iptables-legacy-save", "iptables-save v1"),
        ("usr/sbin/conntrack", "conntrack v1"),
    ] {
        let launch = started_in_root(&KEEPER, &image.root, file);
        let (code, output) = run(&launch.arg("--version")).await.unwrap();
        assert_eq!(code, 0, "{file}: {output}");
        assert!(output.contains(expected), "{file}: {output}");
    }
    let licences = image.root.join("usr/share/doc/keepalived/copyright");
    assert!(licences.exists(), "the licences of Debian's packages");
}

/// A node's folder is mounted into the installer's root; here it is one in it.
#[tokio::test]
#[ignore = "full: release images"]
async fn the_plugin_starts_in_an_empty_root_and_installs_itself() {
    let root = tempfile::tempdir().unwrap();
    output(Command::new("cp").args(["-R", "-T"]).arg(&PLUGIN.image().root).arg(root.path()));
    let size = std::fs::metadata(root.path().join("egress-router")).unwrap().len();
    println!("{size} bytes of program");
    assert!(size <= LARGEST_PLUGIN, "{size} bytes");
    let bin = root.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let (code, output) =
        run(&in_root(&PLUGIN, root.path()).args(["install", "--bin-dir=/bin"])).await.unwrap();
    assert_eq!(code, 0, "{output}");
    assert_eq!(
        std::fs::read(bin.join("egress-router")).unwrap(),
        std::fs::read(root.path().join("egress-router")).unwrap()
    );
    let version = Program::at(bin.join("egress-router")).env("CNI_COMMAND", "VERSION");
    let (code, output) = run(&version).await.unwrap();
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("\"1.1.0\"") && output.contains("\"0.3.0\""), "{output}");
}

/// A copy of the image with other authorities to trust, and with the files that a pod would mount.
fn copy(env: &TestEnv, authorities: Option<&str>, endpoint: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    output(Command::new("cp").args(["-R", "-T"]).arg(&NATGW.image().root).arg(root.path()));
    if let Some(authorities) = authorities {
        std::fs::write(root.path().join(BUNDLE), authorities).unwrap();
    }
    let settings = env.settings(&format!("hetzner: {{endpoint: '{endpoint}'}}\n")).unwrap();
    std::fs::copy(settings, root.path().join("natgw.yaml")).unwrap();
    std::fs::copy(&env.kubeconfig, root.path().join("kubeconfig")).unwrap();
    root
}

#[tokio::test]
#[ignore = "full: release images"]
async fn only_the_bundle_of_the_image_is_trusted() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some("198.51.100.1")).await.unwrap();
    let front = tls::Front::of(&env.hetzner.url()).unwrap();
    let dry_run = |root: &TempDir| {
        in_root(&NATGW, root.path())
            .env("HCLOUD_TOKEN", env.hetzner.token())
            .env("KUBECONFIG", "/kubeconfig")
            .args(["--config", "/natgw.yaml", "--dry-run"])
    };
    let known = copy(&env, Some(&front.authority), &front.url);
    // A Node that is not Ready yet is no gateway.
    wait_for("a plan that names the gateway", || async {
        let (code, output) = run(&dry_run(&known)).await?;
        assert_eq!(code, 0, "{output}");
        Ok(output.contains(&gateway.name))
    })
    .await
    .unwrap();

    // The bundle of the image does not contain the test's authority.
    let unknown = copy(&env, None, &front.url);
    let (code, output) = run(&dry_run(&unknown)).await.unwrap();
    assert_eq!(code, 1, "{output}");
    assert!(output.contains("certificate"), "{output}");
}
