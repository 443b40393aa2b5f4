# Perimeter's targets. `make` alone lists them. Everything that is downloaded or built for the tests is outside of the
# checkout, in $(PERIMETER_ASSETS) (default ~/.cache/perimeter), in folders named after versions.
#
#   KUBERNETES=1.33   the Kubernetes that tests and demo run on: 1.36 (default) or 1.33, the oldest that is supported
#   KUBEBUILDER_ASSETS=DIR, or E2E_EXISTING_CLUSTER=1 with KUBECONFIG   use these instead of building a control plane

SHELL := /bin/bash
.DEFAULT_GOAL := help
export KUBERNETES ?= 1.36

# A C compiler for ring and the linker; setpriv and unshare of util-linux keep children from outliving their parents.
BUILD_PACKAGES := gcc libc6-dev make util-linux
# musl-tools: static programs; the CA bundle goes into the images; binutils: the libraries of Debian's programs in cgw-keeper. Users
# choose the engine themselves, and the tests use buildah.
IMAGE_PACKAGES := $(BUILD_PACKAGES) musl-tools ca-certificates binutils debian-archive-keyring
# mariadb-server, mariadb-client, rabbitmq-server: database and message queue of OpenStack's services; eatmydata: neither of them
# waits for a disk; python3-venv, python3-dev: the services are installed from PyPI, and uWSGI, which serves them, is compiled.
OPENSTACK_PACKAGES := mariadb-server mariadb-client rabbitmq-server eatmydata openssl python3-venv python3-dev
# Network namespaces with packets.
LAB_PACKAGES := $(BUILD_PACKAGES) iproute2 iputils-ping socat mount hostname nftables
# keepalived: cgw's keepers; iptables, netplan.io, procps: natgw's scripts; strace: faults at any system call; prometheus: promtool checks the alerts.
TEST_PACKAGES := $(LAB_PACKAGES) $(OPENSTACK_PACKAGES) iptables netplan.io procps strace prometheus keepalived
# runc, conntrack, busybox-static: cluster nodes; buildah: images; qemu-system-x86, qemu-system-common, cpio: a Debian kernel under
# emulation; g++: libFuzzer; openvswitch-switch, ethtool: openshift-sdn's bridge.
FULL_PACKAGES := $(TEST_PACKAGES) $(IMAGE_PACKAGES) buildah runc conntrack busybox-static qemu-system-x86 qemu-system-common cpio g++ openvswitch-switch ethtool
LINT_PACKAGES := $(BUILD_PACKAGES) shellcheck
DENY := 0.20.2
# The images: one for each crate, and cgw-controller's second one.
IMAGES := natgw egress-router-cni routegc deorbiter apinetlet cgw-controller cgw-keeper

.PHONY: help
help: ## This list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-20s %s\n", $$1, $$2 }'

.PHONY: demo
demo: build-packages ## Watch natgw set up a gateway and move the route, on a real control plane; needs no root
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	cargo build --locked -p natgw -p demo
	@"$$(scripts/target.sh)/debug/demo" natgw

.PHONY: demo-egress-router
demo-egress-router: ## Watch a pod's packets leave with an address of its own; needs no root where users may create namespaces
	@scripts/packages.sh $(LAB_PACKAGES)
	@scripts/prerequisites.sh
	cargo build --locked -p egress-router-cni -p demo
	@"$$(scripts/target.sh)/debug/demo" egress-router

.PHONY: demo-routegc
demo-routegc: ## Watch routegc find a stale route on a real Neutron, and remove it; needs no root (two minutes, once the services are installed)
	@scripts/packages.sh $(BUILD_PACKAGES) $(OPENSTACK_PACKAGES)
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	@scripts/openstack.sh main >/dev/null
	cargo build --locked -p routegc -p demo
	@"$$(scripts/target.sh)/debug/demo" routegc

.PHONY: demo-deorbiter
demo-deorbiter: ## Watch deorbiter clean up a cluster on a real OpenStack, with the real drivers (three minutes, once everything is built)
	@scripts/packages.sh $(BUILD_PACKAGES) $(OPENSTACK_PACKAGES)
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	@scripts/assets.sh providers >/dev/null
	@scripts/openstack.sh main >/dev/null
	cargo build --locked -p deorbiter -p demo
	@"$$(scripts/target.sh)/debug/demo" deorbiter

.PHONY: demo-apinetlet
demo-apinetlet: build-packages ## Watch apinetlet map a tenant's network, between the real API servers of ironcore and ironcore-net; needs no root
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	@scripts/assets.sh ironcore >/dev/null
	cargo build --locked -p apinetlet -p demo
	@"$$(scripts/target.sh)/debug/demo" apinetlet

.PHONY: demo-cluster
demo-cluster: ## natgw's demo on a cluster of real nodes, with packets; needs root (about 3 minutes, and an image's build)
	@scripts/prerequisites.sh
	@scripts/packages.sh $(FULL_PACKAGES)
	@scripts/assets.sh 1.36 >/dev/null
	@scripts/assets.sh cluster >/dev/null
	cargo build --locked -p natgw -p demo
	@"$$(scripts/target.sh)/debug/demo" natgw-cluster

.PHONY: demo-cgw
demo-cgw: ## Watch a Service's VIP as its ingress and egress address, and a gateway that is powered off, on real nodes; needs root (about 3 minutes, and two images' builds)
	@scripts/prerequisites.sh
	@scripts/packages.sh $(FULL_PACKAGES)
	@scripts/assets.sh 1.36 >/dev/null
	@scripts/assets.sh cluster >/dev/null
	cargo build --locked -p cgw-controller -p demo
	@"$$(scripts/target.sh)/debug/demo" cgw

.PHONY: check
check: build-packages ## Format, clippy, and the tests of the crates (3 minutes once compiled; no root, downloads only crates)
	@scripts/prerequisites.sh cargo
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@scripts/test.sh crates

.PHONY: test
test: ## What CI runs besides `make lint`: the crates' tests and the integration tests (15 minutes, 50 the first time; root)
	@scripts/prerequisites.sh test
	@scripts/packages.sh $(TEST_PACKAGES)
	@$(MAKE) --no-print-directory --jobs=3 test-assets test-services test-programs
	@MAKEFLAGS= scripts/test.sh crates integration

.PHONY: test-full
test-full: ## Everything: also real nodes, release images, the OpenStack drivers, older releases, whole sweeps (hours; root)
	@scripts/prerequisites.sh full
	@scripts/packages.sh $(FULL_PACKAGES)
	@$(MAKE) --no-print-directory --jobs=3 full-assets full-services test-programs
	@# Before the tests that need them: beside the tests of nodes and clouds, a release build takes six times as long.
	@for crate in $(IMAGES); do MAKEFLAGS= ENGINE=buildah scripts/images.sh $$crate >/dev/null || exit 1; done
	@MAKEFLAGS= scripts/test.sh crates full oldest-kubernetes tools fuzz cgroup2

# The assets and services of the tests are built in parallel with the tests: one waits for a download while the other compiles.
.PHONY: test-assets test-services full-assets full-services test-programs
test-assets:
	@for what in $(KUBERNETES) kubectl monitoring cni ironcore; do scripts/assets.sh $$what >/dev/null || exit 1; done
test-services:
	@scripts/python.sh hcloud >/dev/null
	@scripts/python.sh schemathesis >/dev/null
	@scripts/openstack.sh main >/dev/null
full-assets: test-assets
	@for what in 1.33 1.36 cluster collector multus flannel providers; do scripts/assets.sh $$what >/dev/null || exit 1; done
full-services: test-services
	@scripts/python.sh moto >/dev/null
	@scripts/openstack.sh oldest >/dev/null
# With MAKEFLAGS, cargo would limit itself to make's jobs instead of using all processors.
test-programs:
	@MAKEFLAGS= scripts/test.sh build

.PHONY: images
images: image-packages ## Container images, with docker, podman or buildah (ENGINE=... selects one), and as OCI archives
	@for crate in $(IMAGES); do scripts/images.sh $$crate || exit 1; done

.PHONY: fuzz
fuzz: ## Search for inputs that break the parsers of egress-router-cni, apinetlet and cgw-controller, ten minutes each (SECONDS_EACH=..., TARGETS="...")
	@scripts/packages.sh $(BUILD_PACKAGES) g++
	@scripts/fuzz.sh $(or $(SECONDS_EACH),600) $(TARGETS)

.PHONY: test-cgroup2
test-cgroup2: ## A cluster's node on a stock Debian kernel with cgroup v2 (emulated: about 10 minutes; needs root)
	@scripts/prerequisites.sh
	@scripts/packages.sh $(FULL_PACKAGES)
	@scripts/cgroup2.sh

.PHONY: lint
lint: ## Format, clippy, licences and sources, links, each crate alone, scripts, generated files
	@scripts/prerequisites.sh cargo
	@scripts/packages.sh $(LINT_PACKAGES)
	cargo fmt --all --check
	for manifest in crates/*/fuzz/Cargo.toml; do cargo fmt --manifest-path $$manifest --check || exit 1; done
	for manifest in crates/*/fuzz/Cargo.toml; do cargo metadata --locked --format-version 1 --manifest-path $$manifest >/dev/null || exit 1; done
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@scripts/crates-alone.sh
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@scripts/links.sh
	@scripts/purity.sh
	@scripts/words.py
	git ls-files '*.sh' .ci/run | xargs shellcheck
	@"$$(scripts/cargo-tool.sh cargo-deny $(DENY))" --locked check bans licenses sources
	@$(MAKE) --no-print-directory generate
	git diff --exit-code -- docs manifests/crds 'manifests/*/crds'

.PHONY: generate
generate: ## Write the generated files again: the command line in docs/, the schemas in manifests/*/crds/
	@# With the same features of the dependencies as the tests, so that nothing is compiled twice.
	cargo build --locked --workspace --exclude demo --exclude bench --bins --examples
	@set -eo pipefail; programs=$$(scripts/target.sh)/debug; for crate in natgw routegc deorbiter apinetlet; do \
	  "$$programs/$$crate" --help | scripts/without-environment.sh >docs/$$crate-help.txt; \
	done; for role in controller keeper keeper-guard agent ctl; do \
	  echo "\$$ cgw $$role --help"; "$$programs/cgw" $$role --help; echo; \
	done | scripts/without-environment.sh >docs/cgw-help.txt; "$$programs/examples/crds" manifests

.PHONY: bench
bench: bench-work-queue bench-natgw bench-egress-router bench-routegc bench-apinetlet bench-cgw bench-deorbiter ## Measure the programs as users get them and print tables (half an hour, plus the release builds)

.PHONY: bench-work-queue
bench-work-queue: build-packages ## The work queue of the per-key controllers, with 100,000 keys (a second)
	@scripts/prerequisites.sh
	cargo build --release --locked -p bench
	@"$$(scripts/target.sh)/release/bench" work-queue

.PHONY: bench-natgw
bench-natgw: build-packages ## natgw's part (about 6 minutes; ONLY=start,crowd: parts)
	@scripts/packages.sh musl-tools
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	cargo build --release --locked -p bench
	@scripts/static.sh natgw
	@target=$$(scripts/target.sh); "$$target/release/bench" natgw \
	  --program "$$target/$$(uname -m)-unknown-linux-musl/dist/natgw" $(if $(ONLY),--only $(ONLY))

.PHONY: bench-egress-router
bench-egress-router: ## The CNI plugin's part, against Debian's plugins (2 minutes on a machine where nothing else runs)
	@scripts/packages.sh $(LAB_PACKAGES) musl-tools containernetworking-plugins
	@scripts/prerequisites.sh
	cargo build --release --locked -p bench --no-default-features
	@scripts/static.sh egress-router-cni
	@target=$$(scripts/target.sh); "$$target/release/bench" egress-router \
	  --program "$$target/$$(uname -m)-unknown-linux-musl/dist/egress-router"

.PHONY: bench-routegc
bench-routegc: ## routegc's part, on a real Neutron (about 6 minutes; ONLY=start,reconcile,steady: parts)
	@scripts/packages.sh $(BUILD_PACKAGES) $(OPENSTACK_PACKAGES) musl-tools
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	@scripts/openstack.sh main >/dev/null
	cargo build --release --locked -p bench
	@scripts/static.sh routegc
	@target=$$(scripts/target.sh); "$$target/release/bench" routegc \
	  --program "$$target/$$(uname -m)-unknown-linux-musl/dist/routegc" $(if $(ONLY),--only $(ONLY))

.PHONY: bench-apinetlet
bench-apinetlet: ## apinetlet's part, with the Go program in the same run (about 12 minutes; ONLY=start,crowd: parts)
	@scripts/packages.sh $(BUILD_PACKAGES) musl-tools
	@scripts/prerequisites.sh
	@for what in $(KUBERNETES) ironcore; do scripts/assets.sh $$what >/dev/null || exit 1; done
	cargo build --release --locked -p bench
	@scripts/static.sh apinetlet
	@target=$$(scripts/target.sh); "$$target/release/bench" apinetlet \
	  --program "$$target/$$(uname -m)-unknown-linux-musl/dist/apinetlet" $(if $(ONLY),--only $(ONLY))

.PHONY: bench-cgw
bench-cgw: ## cgw-controller's part: a promotion with 1,000 Services, an agent with 5,000 pods, the driver vxlan (about 4 minutes; root; ONLY=start,moves,crowd: parts)
	@scripts/packages.sh $(LAB_PACKAGES) musl-tools
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	cargo build --release --locked -p bench
	@scripts/static.sh cgw-controller
	@target=$$(scripts/target.sh); "$$target/release/bench" cgw \
	  --program "$$target/$$(uname -m)-unknown-linux-musl/dist/cgw" $(if $(ONLY),--only $(ONLY))

.PHONY: bench-deorbiter
bench-deorbiter: ## deorbiter's part, on a real OpenStack with the real drivers (about 20 minutes; ONLY=providers,claims: parts)
	@scripts/packages.sh $(BUILD_PACKAGES) $(OPENSTACK_PACKAGES) musl-tools
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	@scripts/assets.sh providers >/dev/null
	@scripts/openstack.sh main >/dev/null
	cargo build --release --locked -p bench
	@scripts/static.sh deorbiter
	@target=$$(scripts/target.sh); "$$target/release/bench" deorbiter \
	  --program "$$target/$$(uname -m)-unknown-linux-musl/dist/deorbiter" $(if $(ONLY),--only $(ONLY))

.PHONY: assets
assets: full-assets full-services ## Build everything that the tests need, once for each version (half an hour, 8 GB in ~/.cache/perimeter)

.PHONY: clean-assets
clean-assets: ## Delete everything that was built or installed for the tests and demos outside of the checkout
	@scripts/assets.sh --clean

.PHONY: advisories
advisories: ## Known vulnerabilities in the dependencies (needs the internet)
	@"$$(scripts/cargo-tool.sh cargo-deny $(DENY))" --locked check advisories

.PHONY: build-packages image-packages
build-packages:
	@scripts/packages.sh $(BUILD_PACKAGES)
image-packages:
	@scripts/packages.sh $(IMAGE_PACKAGES)
