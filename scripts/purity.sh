#!/usr/bin/env bash
# purity.sh: checks that the modules that decide a plan use no client, runtime or clock. libc's constants are numbers of the kernel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if git ls-files 'crates/*/src/plan.rs' 'crates/*/src/plan/*.rs' 'crates/*/src/observe/snapshot.rs' \
  'crates/cgw-controller/src/api/*.rs' 'crates/cgw-controller/src/*/plan.rs' 'crates/cgw-controller/src/*/plan/*.rs' \
  'crates/cgw-controller/src/agent/*/plan.rs' 'crates/cgw-controller/src/agent/*/plan/*.rs' 'crates/common/src/leader/machine.rs' \
  'crates/common/src/routes/plan.rs' 'crates/common/src/routes/plan/*.rs' 'crates/common/src/routes/snapshot.rs' \
  'crates/*/src/trigger/plan.rs' 'crates/*/src/trigger/plan/*.rs' 'crates/*/src/trigger/snapshot.rs' |
  xargs grep -nE '\b(kube|tokio|hyper|ureq)::|\blibc::[a-z]|crate::(sys|apply)::|netlink::socket|SystemTime|Instant::now|Timestamp::now|std::(net::Tcp|fs|process|thread)'; then
  echo "these modules must stay pure: no client, no runtime, no clock" >&2
  exit 1
fi
