#!/usr/bin/env bash
# without-environment.sh: removes the values of the caller's environment from clap's help, so that the text is the same everywhere.
set -euo pipefail

sed -E 's/\[env: ([A-Z0-9_]+)=[^]]*\]/[env: \1]/; s/[ \t]+$//'
