#!/usr/bin/env bash
# without-environment.sh: removes from clap's help what the caller's environment put there, so that it is the same everywhere.
set -euo pipefail

sed -E 's/\[env: ([A-Z0-9_]+)=[^]]*\]/[env: \1]/; s/[ \t]+$//'
