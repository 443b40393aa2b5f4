# Perimeter's verbs. `make` alone lists them. Everything that is downloaded or built for the tests lies outside of the
# checkout, in $(PERIMETER_ASSETS) (default ~/.cache/perimeter), in folders named after versions.
#
#   KUBERNETES=1.33   the Kubernetes that tests and demo run on: 1.36 (default) or 1.33, the oldest that is supported
#   KUBEBUILDER_ASSETS=DIR, or E2E_EXISTING_CLUSTER=1 with KUBECONFIG   use these instead of building a control plane

SHELL := /bin/bash
.DEFAULT_GOAL := help
export KUBERNETES ?= 1.36

# A C compiler for ring and the linker; setpriv and unshare of util-linux keep children from outliving their parents.
BUILD_PACKAGES := gcc libc6-dev make util-linux
# iproute2, iptables, iputils-ping, socat: network namespaces with packets; python3-venv: Hetzner's own client; shellcheck: the scripts.
TEST_PACKAGES := $(BUILD_PACKAGES) iproute2 iptables iputils-ping socat mount hostname procps python3-venv shellcheck
DENY := 0.20.2

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: build-packages ## Watch natgw make a gateway, and the route move, on a real control plane; needs no root
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	cargo build --locked -p natgw -p e2e --bins
	@"$$(scripts/target.sh)/debug/demo" natgw

.PHONY: test
test: test-packages ## Everything that proves the project; ends with how many tests passed
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	@scripts/python-hcloud.sh >/dev/null
	@scripts/test.sh

.PHONY: lint
lint: test-packages ## Format, clippy, licences and sources, links, each crate alone, scripts, generated files
	@scripts/prerequisites.sh
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@scripts/crates-alone.sh
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	@scripts/links.sh
	@scripts/purity.sh
	git ls-files '*.sh' .ci/run | xargs shellcheck
	@"$$(scripts/cargo-tool.sh cargo-deny $(DENY))" --locked check bans licenses sources
	@$(MAKE) --no-print-directory generate
	git diff --exit-code -- docs

.PHONY: generate
generate: ## Write the generated files again: the command line in docs/
	cargo build --locked -p natgw --bins
	@"$$(scripts/target.sh)/debug/natgw" --help | scripts/without-environment.sh >docs/natgw-help.txt

.PHONY: bench
bench: build-packages ## Measure natgw and print a table (about 6 minutes and a release build)
	@scripts/prerequisites.sh
	@scripts/assets.sh $(KUBERNETES) >/dev/null
	cargo build --release --locked -p natgw -p e2e --bins
	@"$$(scripts/target.sh)/release/bench" natgw

.PHONY: assets
assets: ## Build what the tests run on, once for each version: etcd, Kubernetes, Hetzner's Python client
	@scripts/assets.sh $(KUBERNETES)
	@scripts/python-hcloud.sh

.PHONY: advisories
advisories: ## Known vulnerabilities in the dependencies (needs the internet)
	@"$$(scripts/cargo-tool.sh cargo-deny $(DENY))" --locked check advisories

.PHONY: build-packages test-packages
build-packages:
	@scripts/packages.sh $(BUILD_PACKAGES)
test-packages:
	@scripts/packages.sh $(TEST_PACKAGES)
