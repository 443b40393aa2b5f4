#!/usr/bin/env bash
# packages.sh PACKAGE...: makes sure that Debian packages are there. Installs what is missing where it may (root, or sudo
# without a password); elsewhere it names them and the command, in one line, and fails.
set -euo pipefail

missing=()
for package in "$@"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || true
  [[ $status == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then as_root=(sudo -n); fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
  echo "packages: missing: ${missing[*]}; install with: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi

echo "packages: installing ${missing[*]}" >&2
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
log=$(mktemp)
# Some packages start a daemon as they are installed; the tests start their own, on loopback. Debian asks this file first.
policy=/usr/sbin/policy-rc.d made=
cleanup() {
  rm -f "$log"
  [[ -z $made ]] || "${as_root[@]}" rm -f "$policy"
}
trap cleanup EXIT
if [[ ! -e $policy ]]; then
  made=yes
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -m 755 /dev/stdin "$policy"
fi
{ "${apt[@]}" update && "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || {
  tail -n 20 "$log" >&2
  echo "packages: not installed: ${missing[*]}" >&2
  exit 1
}
