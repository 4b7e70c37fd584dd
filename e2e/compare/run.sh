#!/usr/bin/env bash
# Make before break under load, Chancery beside go-control-plane, with a real
# Envoy: how many requests fail while clusters take each other's place. RUNS
# times each, by default once, which takes three minutes. The tests of package
# e2e judge all by the same rules, which others are meant to fail; only the
# figures are printed.
set -euo pipefail
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" .
(cd ../.. && go build -o "$bin/" ./cmd/chancery)
cd ..

judge() { # NAME SERVER
	for _ in $(seq "${RUNS:-1}"); do
		E2E_SERVER=$bin/$2 go test -count=1 -parallel 1 -run '^TestMakeBeforeBreak$' -v . |
			sed -n "s/^ *mbb_test.go:[0-9]*: \(sotw\|delta\): /$1: \1: /p" || true
	done
}

judge chancery chancery
for mode in "" ordered ads ads,ordered ads,ordered,pause=100ms; do
	COMPARE=$mode judge "go-control-plane ${mode:-as it comes}" compare
done
