#!/usr/bin/env bash
# packages.sh PACKAGE...: makes sure that Debian packages are installed. As root, or with sudo without a password, it installs
# the missing ones and prints their names. Otherwise it prints the names and the command in one line, and fails.
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
trap 'rm -f "$log"' EXIT
# Some packages start a daemon when they are installed. The tests start their own daemons, on loopback. Debian runs this file
# before it starts a daemon, and its exit code forbids the start. A separate process removes the file as soon as this script
# and apt have ended, even if they were killed: the pipe is closed then.
readonly POLICY=/usr/sbin/policy-rc.d MARK="of Perimeter's packages.sh"
guard='' guardian=''
if [[ ! -e $POLICY ]] || grep -qF "$MARK" "$POLICY"; then
  # shellcheck disable=SC2016 # $1 and $2 are the inner sh's
  exec {guard}> >(exec "${as_root[@]}" setsid sh -c '
    trap "" INT TERM HUP
    printf "#!/bin/sh\n# %s\nexit 101\n" "$2" >"$1" && chmod 755 "$1"
    cat >/dev/null
    rm -f "$1"' sh "$POLICY" "$MARK")
  guardian=$!
  until [[ -x $POLICY ]]; do sleep 0.05; done
fi
status=0
{ "${apt[@]}" update && "${apt[@]}" install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 || status=$?
if [[ -n $guard ]]; then
  exec {guard}>&-
  wait "$guardian"
fi
if ((status)); then
  tail -n 20 "$log" >&2
  echo "packages: not installed: ${missing[*]}" >&2
  exit 1
fi
