#!/usr/bin/env bash
# target.sh: prints cargo's target folder.
set -euo pipefail

cargo metadata --locked --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/'
