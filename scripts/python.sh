#!/usr/bin/env bash
# python.sh hcloud|moto|schemathesis: installs a Python program that the tests drive, Hetzner's own client, an EC2 stand-in or a tester
# of HTTP APIs, pinned by the requirements.txt beside its tests, outside of the checkout, and prints where. What is there already stays.
# `<folder>/python` runs a Python that finds it; it is written last, so that its being there means that all is there.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1-} in
  hcloud) requirements=e2e/tests/python/requirements.txt name=hcloud-python ;;
  moto) requirements=crates/egress-router-cni/tests/aws/requirements.txt name=moto ;;
  schemathesis) requirements=e2e/tests/cgw_controller/requirements.txt name=schemathesis ;;
  *) echo "usage: python.sh hcloud|moto|schemathesis" >&2; exit 1 ;;
esac
version=$(sed -n "s/^$1==//p" "$requirements")
folder=${PERIMETER_ASSETS:-${XDG_CACHE_HOME:-$HOME/.cache}/perimeter}/$name-$version

if [[ -x $folder/python ]] && cmp -s "$requirements" "$folder/requirements.txt"; then
  echo "$folder"
  exit
fi

command -v python3 >/dev/null || { echo "python: python3 (3.10 or later) is missing" >&2; exit 1; }
rm -rf "$folder"
mkdir -p "$folder"
# A venv needs Debian's python3-venv; without it pip's own target folder does as well.
if python3 -m venv "$folder/venv" >/dev/null 2>&1; then
  "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements" >&2
else
  rm -rf "$folder/venv"
  python3 -m pip --version >/dev/null 2>&1 ||
    { echo "python: neither python3-venv nor python3-pip is there; install one of these packages" >&2; exit 1; }
  python3 -m pip install --quiet --disable-pip-version-check --target "$folder/site" -r "$requirements" >&2
fi
cp "$requirements" "$folder/requirements.txt"
cat >"$folder/python.new" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$0")
if [ -d "$here/venv" ]; then exec "$here/venv/bin/python" "$@"; fi
PYTHONPATH=$here/site exec python3 "$@"
WRAPPER
chmod +x "$folder/python.new"
mv "$folder/python.new" "$folder/python"
echo "$folder"
