#!/usr/bin/env bash
# The whole matrix, servers interleaved, into results/main.jsonl: about an hour on two cores.
# Then: ./report.py results/main.jsonl
set -euo pipefail
cd "$(dirname "$0")"
go build -o bin/ ./cmd/...
run() { bin/bench -out results/main.jsonl -only limit,limit-nobdp,gcp-linear,gcp-snap,chancery "$@"; }

run -scenario S1 -n 1000 -reps 3
run -scenario S2 -reps 3
run -scenario S3 -reps 2
run -scenario S4a -reps 2
run -scenario S4b -reps 2 -modes delta
run -scenario S4b -reps 2 -modes delta -conns 8
run -scenario S5 -reps 3 -modes delta
run -scenario S6 -reps 2
run -scenario S7 -reps 3 -modes delta
run -scenario S1 -n 5000 -reps 1
