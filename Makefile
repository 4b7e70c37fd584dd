# The repository's commands; `make help` lists them. They need Go, a C compiler
# (race detector), python3 with pip (e2e, coverage), and for e2e also node with
# npm and a JDK with Maven. All else is installed by the targets, at versions
# pinned in go.mod, tools/tools.mod, e2e/install.sh and e2e/clients.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

STAGES   := build lint race pure memory sim fuzz e2e page bench-smoke examples k8s coverage
MODULES  := . bench e2e examples/admin examples/directory examples/embedded examples/from-go-control-plane examples/grpc/greeter source/k8s tools/descriptors tools/manifests tools/proto
WORLDS   ?= 40000
FUZZTIME ?= 1000x
SOAK     ?= 1h
CHAOS    ?= 30m # of chaos-store
SEED     ?= 0   # of chaos-store (0: any) and mutants
N        ?= 100 # mutants of a package
# Slow tests in which nothing is concurrent: the race detector would make them ten times as slow.
SERIAL   := Scripts|UnfinishedMemory|LineOfSecrets|Canaries|CheckOfManyIsFast|Decode|EncodeRequest|TreeAgreesWithMap|StepsInAnyOrder|MessagesQuick|WaitingNamesAreCheap|CheckoutIsGathered
PLAIN    := Memory|$(SERIAL)
# GOGC of what compiles, which has little to collect: a fifth less of time, for memory. Not of what measures memory, or of servers.
ROOM     := 400
# Packages without a goroutine, as internal/arch proves of the protocol.
PURE     := ./protocol/... ./internal/arch ./tools/mutants

TOOL    := go tool -modfile=$(CURDIR)/tools/tools.mod
RESULTS := $(CURDIR)/.cache/test
# Runs tests, prints a line per package, the output of what fails and the reason
# of what is skipped, and keeps the results of stage $@ for `make coverage`. None
# comes from Go's cache, which does not see the programs that tests build and run. They are
# linked without what a debugger needs (-w), and `make lint` has vetted them.
GOTEST  = mkdir -p $(RESULTS) && $(TOOL) gotestsum --format pkgname --jsonfile $(RESULTS)/$@.json -- -count=1 -vet=off -ldflags=-w

.PHONY: help test $(STAGES) soak abuse chaos chaos-matrix chaos-store floors-store mutants faults bench clean

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | column -t -s '|'

test: export CI := true# a real client that is not installed is a failure
test: ## Run everything, stage by stage, as CI does
	@rm -rf $(RESULTS)
	@tools/stages $(STAGES)

build: ## Compile, and put the program into bin/
	GOGC=$(ROOM) go build ./...
	GOGC=$(ROOM) go build -o bin/ ./cmd/...

lint: ## golangci-lint with formatting; phrases, hidden statements, commit subjects (tools/plain); is the code of the .proto files current?
	go run ./tools/plain
	export GOGC=$(ROOM); for m in $(MODULES); do (cd $$m && $(TOOL) golangci-lint run ./...); done
	cd tools/proto && go test ./...

race: .cache/envoy ## Unit tests, under the race detector
	@packages=$$(go list ./... | grep -vxFf <(go list $(PURE))); export GOGC=$(ROOM); $(GOTEST) -race -skip '$(SERIAL)|CommandsOfDocs' $$packages # `make examples` runs the commands of the docs

pure: ## Unit tests of packages in which nothing is concurrent: ten times as slow under the race detector, which has nothing to detect there
	@$(GOTEST) -skip Simulation $(PURE)

memory: ## What takes how much memory, and what is slow and not concurrent: without the race detector, which has a memory of its own
	@packages=$$(tools/packages-with '$(PLAIN)'); $(GOTEST) -run '$(PLAIN)' $$packages

sim: ## The simulation of both halves of the protocol, WORLDS worlds
	@export WORLDS=$(WORLDS) GOGC=1600 SIM_SUMMARY=$(RESULTS)/sim.txt; rm -f $$SIM_SUMMARY; $(GOTEST) -timeout 2h -run Simulation ./protocol ./protocol/internal/client; cat $$SIM_SUMMARY

fuzz: ## Each fuzz target for FUZZTIME: 1,000 inputs (1000x), since there are many; or a time (1m)
	GOGC=$(ROOM) tools/fuzz $(FUZZTIME)

.cache/envoy: e2e/install.sh
	cd e2e && ./install.sh envoy

e2e: ## Real clients as judges; installs them into .cache
	@cd e2e && { ./install.sh & GOGC=$(ROOM) go list -export -deps -test ./... >/dev/null; wait $$!; } # compiles meanwhile, on all cores: below, -p 1 is of that, too
	@cd e2e && $(GOTEST) -p 1 ./... # one package at a time: what is judged by time runs alone

page: ## The page of the admin API: lint, unit tests, is web/dist current? Then a real browser, server and Envoys
	cd web && npm ci --no-audit --no-fund && npm run -s build && npm run -s check
	e2e/install.sh envoy browser
	go build -o bin/ ./cmd/chancery
	cd e2e && go build -o ../bin/ ./crowd
	cd web && npx playwright test

soak: ## Random clients and commits, judged when they rest, for SOAK; `make e2e` has some seconds of it
	@mkdir -p $(RESULTS)
	cd e2e && $(TOOL) gotestsum --format standard-quiet -- ./soak -count=1 -timeout 0 -for $(SOAK) -samples $(RESULTS)/soak.tsv
	@grep '^#' $(RESULTS)/soak.tsv

ABUSE ?= 60s # of each attack
abuse: ## 24 abuses of HTTP/2 and xDS at three memory limits, from two addresses, ABUSE (60s) each: four hours, docs/abuse.md; `make e2e` has some seconds of the worst
	@mkdir -p $(RESULTS); rm -f $(RESULTS)/abuse.md
	cd e2e && $(TOOL) gotestsum --format standard-verbose -- ./abuse -count=1 -timeout 0 -whole -attack-for $(ABUSE) -results $(RESULTS)/abuse.md
	@cat $(RESULTS)/abuse.md

chaos: chaos-matrix chaos-store ## All that breaks things for long: forty minutes

chaos-matrix: ## The failure matrix, all rows at full length, eight minutes: docs/reliability.md
	cd e2e && ./install.sh envoy
	cd e2e && $(TOOL) gotestsum --format standard-verbose -- ./chaos -count=1 -timeout 30m -whole

chaos-store: ## Replicas of an etcd under random faults, for CHAOS (30m), by SEED: docs/revisions.md
	cd e2e && $(TOOL) gotestsum --format standard-verbose -- ./etcd -count=1 -timeout 0 -run 'TestReplicas$$' -store-for $(CHAOS) -store-seed $(SEED) -store-clients 1000

floors-store: ## How long commits to an etcd take, until replicas hear of them, and until they share clients: docs/revisions.md
	cd e2e && $(TOOL) gotestsum --format standard-verbose -- ./etcd -count=1 -run 'Floors|HeadToReplicas|ShedSurplus' -store-floors

coverage: ## Requirements that no passed test names
	tools/spec-coverage $(RESULTS)/*.json

mutants: ## Break the code of PKG in N random places (or in lines that differ from revision DIFF), one at a time: does a test fail?
	GOGC=$(ROOM) go run ./tools/mutants -n $(N) -seed $(SEED) $(if $(DIFF),-diff $(DIFF)) $(if $(REPORT),-report $(REPORT)) $(PKG)

faults: ## Put each fault of the core's history back (tools/mutants/faults.txt): does a test fail?
	GOGC=$(ROOM) go run ./tools/mutants -faults tools/mutants/faults.txt -floor 100 -v ./protocol $(wildcard protocol/internal/*)

bench-smoke: ## Does the benchmark run?
	cd bench && go build -o bin/ ./cmd/...
	cd bench && bin/bench -only chancery,limit -scenario S1 -n 100 -reps 1 -out results/smoke.jsonl

bench: ## The whole benchmark, about an hour
	cd bench && ./run-all.sh

examples: .cache/envoy ## Compile and test what people copy, and go through the demo once
	for m in $$(find examples -name go.mod); do (cd $$(dirname $$m) && go test ./...); done
	go run ./tools/demo --once --compile
	DOCS_COMPILE=1 go test ./cmd/chancery -count=1 -run TestCommandsOfDocs # with the commands of the docs that compile

k8s: ## Tests of the source for Kubernetes, and of the Helm chart and the compose file: modules of their own
	@cd source/k8s && $(GOTEST) ./...
	cd tools/manifests && go test ./...

.PHONY: k8s-real
KUBE := $(CURDIR)/.cache/kube
k8s-real: ## The source for Kubernetes with a real kube-apiserver and etcd, which compile for a quarter of an hour the first time: docs/kubernetes.md
	@echo "The API server is being compiled, once: up to a quarter of an hour."
	export CGO_ENABLED=0; cd source/k8s/real/programs && go build -o $(KUBE)/ k8s.io/kubernetes/cmd/kube-apiserver && go build -o $(KUBE)/etcd go.etcd.io/etcd/server/v3
	go build -o $(KUBE)/ ./cmd/chancery
	cd source/k8s && go build -o $(KUBE)/ ./cmd/chancery-k8s && $(TOOL) gotestsum --format standard-verbose -- ./real -count=1 -timeout 30m -programs $(KUBE)

.PHONY: descriptors
descriptors: ## Make the descriptor set of Envoy's API anew, of the modules in tools/descriptors/go.mod
	cd tools/descriptors && go run . $(CURDIR)/internal/envoy

.PHONY: proto
proto: ## Make the Go code of proto/ anew, by the compiler and the plugins in tools/proto/go.mod
	cd tools/proto && go run . $(CURDIR)/proto

.PHONY: release-snapshot
release-snapshot: ## Make all of a release but its publication, of all TARGETS or some (linux_amd64), and look into it: packaging/README.md
	tools/release-snapshot $(TARGETS)

clean: ## Remove what the other targets made
	rm -rf .cache bin bench/bin bench/results dist packaging/made

.PHONY: demo
demo: ## Chancery and a real Envoy on this machine, step by step; Ctrl-C ends it
	@cd e2e && ./install.sh envoy
	@echo "The demo is being compiled: some seconds, and longer the first time."
	@go run ./tools/demo $(DEMO)

.PHONY: compare
compare: ## Make before break beside go-control-plane, RUNS times: docs/make-before-break.md
	cd e2e && ./install.sh
	e2e/compare/run.sh
