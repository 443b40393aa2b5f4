#!/usr/bin/env bash
# openstack.sh main|oldest: installs the services of an OpenStack release from PyPI, pinned by e2e/openstack/<release>.lock,
# and prints the folder; `venv` in it is the Python environment, `seeds` belongs to e2e::openstack. What is there stays.
# openstack.sh --print main|oldest: prints the folder, there or not, and installs nothing.
#
# main has Keystone, Neutron, Nova, Placement, Glance, Cinder and Octavia; oldest has Keystone and Neutron. Folders lie in
# ${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-~/.cache}/perimeter}, and are named after Neutron's version and all that is pinned.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly PINS=$HERE/e2e/openstack
readonly ASSETS=${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/perimeter}
# Debian's own: python3-dev has headers for no other, and a Python that comes and goes with a user's shell pins nothing.
readonly PYTHON=/usr/bin/python3

say() { printf 'openstack: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

print_only=
if [[ ${1-} == --print ]]; then
  print_only=yes
  shift
fi
release=${1-}
[[ $# == 1 && ($release == main || $release == oldest) ]] || die "usage: openstack.sh [--print] main|oldest"
lock=$PINS/$release.lock
key=$(cat "$lock" "$PINS/bind_anywhere.py" <("$PYTHON" --version; uname -sm) | sha256sum | cut -c-12)
folder=$ASSETS/openstack-$(sed -n 's/^neutron==//p' "$lock")-$key

if [[ -z $print_only && ! -d $folder ]]; then
  "$PYTHON" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' ||
    die "Python 3.11 or newer with venv is needed (Debian: python3-venv)"
  mkdir -p "$ASSETS"
  exec {guard}>"$ASSETS/.openstack.lock"
  flock --nonblock "$guard" || { say "another installation is under way; waiting for it"; flock "$guard"; }
  if [[ ! -d $folder ]]; then
    say "installing Neutron $(sed -n 's/^neutron==//p' "$lock") and its like, once; this takes some minutes"
    rm -rf "$ASSETS"/openstack-*.new # Of installations that were killed: the lock is ours.
    new=$folder.new
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir -p "$new"
    "$PYTHON" -m venv "$new/venv"
    pip=("$new/venv/bin/python" -m pip install --quiet --disable-pip-version-check)
    "${pip[@]}" wheel setuptools >&2
    # uWSGI is linked with the Python that built it: a wheel that another of the same version left in the cache is no good.
    "${pip[@]}" --no-cache-dir "$(grep -i '^uwsgi==' "$lock")" >&2
    "${pip[@]}" -r "$lock" >&2
    site=$("$new/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    install -m 644 "$PINS/bind_anywhere.py" "$site/"
    info=$site/bind_anywhere-1.0.dist-info
    mkdir "$info"
    printf 'Metadata-Version: 2.1\nName: bind-anywhere\nVersion: 1.0\n' >"$info/METADATA"
    printf '[neutron.ml2.mechanism_drivers]\nbind_anywhere = bind_anywhere:BindAnywhere\n' >"$info/entry_points.txt"
    : >"$info/RECORD"
    # Scripts in there still name the old folder; they are started as arguments of the Python beside them.
    mv -T "$new" "$folder"
  fi
fi
echo "$folder"
