#!/usr/bin/env bash
# without-environment.sh: removes the values of the caller's environment from clap's help, so that the text is the same everywhere.
set -euo pipefail

# The name is at the start of a line where clap wraps before it.
sed -E 's/(\[env: |^ +)([A-Z][A-Z0-9_]+)=[^]]*\]/\1\2]/; s/[ \t]+$//'
