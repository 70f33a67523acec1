# Anteroom. `make help` lists the targets. A target installs missing tools, and prints their names first.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO       ?= go
FUZZTIME ?= 10s
# Cases of a property test in `make test`; `make explore` runs more.
export RAPID_CHECKS ?= 20
# A test binary with the race detector sleeps for a second at its end unless told otherwise.
export GORACE ?= atexit_sleep_ms=0
# The longest time of a package's tests; then go test prints what each test waits for. The slowest take 4 minutes, and 11 with ten programs beside them.
TEST_TIMEOUT ?= 25m
# Property tests draw the same cases in every run, so that a failure is caused by the change; `make explore` draws others.
export RAPID_SEED ?= 20260901
EXPLORE_CHECKS   ?= 1000
# A cache for this tree alone: a shared cache would report the paths of another clone.
export GOLANGCI_LINT_CACHE := $(CURDIR)/bin/.lint-cache
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.0

# Tests are linked without tables for a debugger, which stack traces do not need. Those without the race detector are built without C, as the
# images are, so that all of them share the packages of test-build.
LINK  := -ldflags=-w
PLAIN := CGO_ENABLED=0
# Compiling packages without tables for a debugger takes a tenth less processor time; without inlining too, as with the race detector, a
# third or more.
NO_TABLES := -gcflags=all=-dwarf=false
NO_INLINE := '-gcflags=all=-dwarf=false -l'
# The compiler uses a fifth less processor time with this heap. The tests themselves run with the usual one.
COMPILE := GOGC=400
RUN     := -exec='env -u GOGC'

# Tests of programs, as processes and in a browser: the race detector would check their clients, or multiply the time in which a process
# starts. `make race` builds the programs with it.
PROGRAMS := ./test/e2e ./test/integrations ./gateway/page ./cmd/... ./examples/...
# Tests that the race detector would only slow down. Their goroutines are started by the harness: a server, a client, a check of a property.
# tools/sequential.sh prints the packages that start none, and others that share nothing between goroutines, each with its reason.
SEQUENTIAL := ./eta/... ./lua ./test/mutations ./test/paths
# The modules of this tree.
MODULES := . bench deploy/helm/test sdk/go test/sdk

# The toolchains of the SDKs in sdk/.
SDK_NEEDS := node php javac python3-cryptography

# The commands that exist in this tree; cmd/<name> becomes bin/<name>.
COMMANDS := $(notdir $(patsubst %/,%,$(dir $(wildcard cmd/*/main.go))))

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/gateway, bin/bulkworker, bin/loadgen and bin/shop
	@mkdir -p bin
	@for c in $(COMMANDS); do echo "building bin/$$c" >&2; $(GO) build -o "bin/$$c" "./cmd/$$c" || exit 1; done
	@echo "building bin/shop" >&2; $(GO) build -o bin/shop ./examples/shop
	@echo "building bin/loadgen" >&2; cd bench && $(GO) build -o ../bin/loadgen ./loadgen

.PHONY: run
run: ## Start the demo shop and the gateway in front of it; Ctrl-C stops both
	@tools/need.sh redis-server
	@$(MAKE) --no-print-directory build
	@exec tools/run-demo.sh

.PHONY: test
test: ## Run every test that CI runs: race, browser, cluster, chart
	@tools/need.sh gcc redis-server postgres mariadbd nginx haproxy caddy chromium npm prometheus python3-sklearn $(SDK_NEEDS)
	@tools/need.sh chromium-headless-shell || echo "make test: the browser tests run in a full Chromium, which takes a minute of processor time longer" >&2
	@tools/npm.sh test/axe test/sdk bench/bulk/bullmq
	@$(MAKE) --no-print-directory test-build
	@$(MAKE) --no-print-directory -j 2 --output-sync=target test-programs test-race test-long test-chart test-modules

# The programs that tests build inherit the flags, and so share the packages.
test-build test-programs test-long test-chart test-modules: export GOFLAGS := $(shell $(GO) env GOFLAGS) $(NO_TABLES)
RACE_GOFLAGS := $(shell $(GO) env GOFLAGS) $(NO_INLINE)
test-race: export GOFLAGS := $(RACE_GOFLAGS)

# go build would also link the programs, whose results nothing keeps.
.PHONY: test-build
test-build: ## Compile what the targets below share: side by side, each would compile it again
	$(COMPILE) $(PLAIN) $(GO) list -export ./... >/dev/null

# -count=1 in all of these targets: the cache's key does not include the programs that tests build.
.PHONY: test-programs
test-programs: ## Run the tests of the built programs and of the pages in a browser, and the simulations
	SDK_REQUIRED=1 $(COMPILE) $(PLAIN) $(GO) test $(RUN) -count=1 -vet=off $(LINK) -timeout $(TEST_TIMEOUT) $(PROGRAMS) $(SEQUENTIAL) $$(tools/sequential.sh)

.PHONY: test-race
test-race: ## Run all other tests but the long ones with the race detector
	$(COMPILE) $(GO) test $(RUN) -race -short -count=1 -vet=off $(LINK) -timeout $(TEST_TIMEOUT) $$($(GO) list ./... | grep -vxF "$$($(GO) list $(PROGRAMS) $(SEQUENTIAL) $$(tools/sequential.sh))")

.PHONY: test-long
test-long: ## Run the tests that test-race leaves out: long ones, slow ones without goroutines, browsers, and those that the race detector disturbs
	# These tests wait most of the time. Two packages at once left a third of two processors idle.
	$(COMPILE) $(PLAIN) $(GO) test $(RUN) -p 3 -count=1 -vet=off $(LINK) -timeout $(TEST_TIMEOUT) -run "$$(tools/long.sh)" $$(tools/long.sh --packages)

.PHONY: test-chart
test-chart: chart

.PHONY: test-modules
test-modules: ## Run the tests of the other modules: the SDKs and the load generators
	cd test/sdk && SDK_REQUIRED=1 $(COMPILE) $(PLAIN) $(GO) test $(RUN) -count=1 -vet=off $(LINK) -timeout 5m ./...
	# bench/chaos builds a gateway with the race detector, whose packages test-race has compiled by now.
	cd bench && RACE_GOFLAGS="$(RACE_GOFLAGS)" $(COMPILE) $(PLAIN) $(GO) test $(RUN) -count=1 -vet=off $(LINK) -timeout 10m ./...

.PHONY: sdk
sdk: ## Run the tests of the SDKs alone: Go, Node, Python, PHP and Java, and the workers in TypeScript, Python and Java
	@tools/need.sh redis-server npm $(SDK_NEEDS)
	@tools/npm.sh test/sdk
	cd test/sdk && SDK_REQUIRED=1 $(GO) test -count=1 -timeout 5m -v -run 'SDKs|Go_' ./...
	SDK_REQUIRED=1 $(PLAIN) $(GO) test -count=1 -timeout 5m -v -run 'WorkerSDKs|Examples_Pull' ./test/e2e

.PHONY: integrations
integrations: ## Run the suites of checks alone, through nginx, HAProxy and Caddy with what gateway snippet prints
	@tools/need.sh redis-server nginx haproxy caddy
	$(PLAIN) $(GO) test -count=1 -vet=off $(LINK) -timeout 10m -v ./test/integrations

.PHONY: race
race: ## Run every test with the race detector, the programs' too; 25 minutes
	@tools/need.sh gcc redis-server postgres mariadbd nginx haproxy caddy chromium npm prometheus python3-sklearn $(SDK_NEEDS)
	$(GO) test -race -tags browser -count=1 -vet=off -timeout 1h ./...
	cd bench && $(GO) test -race -count=1 -vet=off -timeout 10m ./...
	cd test/sdk && SDK_REQUIRED=1 $(GO) test -race -count=1 -vet=off -timeout 10m ./...

.PHONY: mutations
mutations: ## Break the product on purpose in each way that test/mutations lists, and fail unless a test notices each; 10 minutes
	@tools/need.sh redis-server postgres mariadbd
	$(GO) run ./test/mutations

.PHONY: check
check: ## Vet, lint and run the tests that need no browser, cluster or waiting: for every change, in under 90 s with warm caches
	@tools/need.sh redis-server postgres mariadbd npm
	@tools/npm.sh bench/bulk/bullmq
	$(GO) vet ./...
	cd bench && $(GO) vet ./...
	cd sdk/go && $(GO) vet ./...
	cd test/sdk && $(GO) vet ./...
	@$(MAKE) --no-print-directory lint
	# -short leaves the rest out and runs a fifth of a property test's cases. Results are cached.
	RAPID_CHECKS=50 $(GO) test -short -vet=off -p 4 -timeout 5m ./...
	cd bench && $(GO) test -short -vet=off -timeout 2m ./...
	cd sdk/go && $(GO) test -count=1 -vet=off -timeout 2m ./...

.PHONY: explore
explore: ## Run the property tests with new cases, EXPLORE_CHECKS (default 1000) of each, and as many paths against real servers; a failure prints the seed that repeats it
	@tools/need.sh gcc redis-server postgres mariadbd
	@for s in npm nginx python3-flask python3-django tomcat10; do tools/need.sh $$s || echo "explore: $$s cannot be installed; its servers are left out" >&2; done
	@if command -v npm >/dev/null; then tools/npm.sh; fi
	PATHS_SPELLINGS=$(EXPLORE_CHECKS) $(GO) test -count=1 -vet=off -timeout 1h -v ./test/paths
	RAPID_SEED=0 RAPID_CHECKS=$(EXPLORE_CHECKS) $(GO) test -count=1 -vet=off -timeout 12h \
		$$(git grep -l 'rapid\.Check(' -- '*_test.go' ':!bench' | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: adaptive
adaptive: ## Watch an adaptive room follow an origin from 100 visitors/s to 40 and back; 4.5 minutes
	@tools/need.sh redis-server
	E2E_LONG=1 $(GO) test -count=1 -vet=off -v -run 'TestAdaptive_Settles' ./test/e2e

.PHONY: browser
browser: ## Run the browser tests alone
	@tools/need.sh redis-server chromium npm
	@tools/npm.sh test/axe
	@tools/browser.sh

.PHONY: bench
bench: ## Compare with nginx, HAProxy, asynq, BullMQ and River in the same run; BENCH_ROUNDS, BENCH_SECONDS, BENCH_WAITING, BENCH_JOBS, BENCH_ONLY, BENCH_PEERS change its length
	@tools/need.sh redis-server nginx haproxy wrk
	@for s in postgres npm; do tools/need.sh $$s || echo "make bench: $$s cannot be installed; the peer that needs it is left out" >&2; done
	@if command -v npm >/dev/null; then tools/npm.sh bench/bulk/bullmq; fi
	@$(MAKE) --no-print-directory build
	@mkdir -p bin && cd bench && $(GO) build -o ../bin/compare ./compare && $(GO) build -o ../bin/abuse ./abuse && $(GO) build -o ../bin/bulkbench ./bulk
	@bin/compare --gateway bin/gateway \
		--rounds "$${BENCH_ROUNDS:-5}" --seconds "$${BENCH_SECONDS:-3}" --waiting "$${BENCH_WAITING:-20000}" $${BENCH_ONLY:+--only "$$BENCH_ONLY"}
	@bin/abuse --gateway bin/gateway
	@exec bin/bulkbench --bulkworker bin/bulkworker --rounds "$${BENCH_ROUNDS:-5}" --jobs "$${BENCH_JOBS:-20000}" --peers "$${BENCH_PEERS:-asynq,bullmq,river}"

.PHONY: bench-million
bench-million: ## Measure a queue of BENCH_MILLION (default 1000000) tickets: bytes, polls, joins, Redis's time of a tick
	@tools/need.sh redis-server nginx haproxy wrk
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/compare ./compare
	@exec bin/compare --gateway bin/gateway --only million --million "$${BENCH_MILLION:-1000000}" \
		--rounds "$${BENCH_ROUNDS:-5}" --seconds "$${BENCH_SECONDS:-3}"

.PHONY: abuse
abuse: ## Count the ambiguous messages that nginx, HAProxy, a bare fasthttp proxy and the gateway let through
	@tools/need.sh redis-server nginx haproxy
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/abuse ./abuse
	@bin/abuse --gateway bin/gateway

.PHONY: cost
cost: ## Compare the processor time of the worst requests within the limits with plain ones of the same length; fail at ten times as much
	@tools/need.sh redis-server
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/cost ./cost
	@bin/cost --gateway bin/gateway

.PHONY: soak
soak: ## Run mixed load through the gateway for SOAK_SECONDS (default 600); fails if its memory grows or a response is wrong
	@tools/need.sh redis-server
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/soak ./soak
	@bin/soak --gateway bin/gateway --loadgen bin/loadgen --duration "$${SOAK_SECONDS:-600}s"

.PHONY: chaos
chaos: ## Admit a crowd through 8 gateways while these and their Redis are stopped and killed, for CHAOS_SECONDS (default 60), and check the promises; CHAOS_SEED repeats a run; CHAOS_STORE=sentinels: masters under sentinels fail instead
	@tools/need.sh redis-server
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/chaos ./chaos
	@bin/chaos --gateway bin/gateway --duration "$${CHAOS_SECONDS:-60}s" $${CHAOS_SEED:+--seed "$$CHAOS_SEED"} $${CHAOS_STORE:+--store "$$CHAOS_STORE"}

.PHONY: surge
surge: ## Raise the rate of a room in which 3,000 visitors wait at two gateways, then end a pause, and report overtaken visitors; 7 minutes
	@tools/need.sh redis-server
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/live ./live
	@bin/live surge
	@bin/live surge --paused --after 130s

.PHONY: live
live: ## Measure how soon a live change, an evacuation of 10,000 and facts for 20,000 pollers are in force on two gateways; LIVE_FLAGS: bin/live --help; 8 minutes
	@tools/need.sh redis-server
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/live ./live
	@bin/live $${LIVE_FLAGS:-}

.PHONY: eta
eta: ## Compare every wait estimator with synthetic sales and print its errors; ETA_FLAGS: bin/gateway eta backtest --help
	@mkdir -p bin && $(GO) build -o bin/gateway ./cmd/gateway
	@bin/gateway eta backtest $${ETA_FLAGS:-}

.PHONY: eta-train
eta-train: ## Train bin/eta-model.json for estimator: model, from ETA_HISTORY (NDJSON of gateway eta export) or synthetic days; ETA_FLAGS: as --time-zone Europe/Berlin
	@tools/need.sh python3-sklearn
	@mkdir -p bin && $(GO) build -o bin/gateway ./cmd/gateway
	@bin/gateway eta backtest $${ETA_HISTORY:---synthetic --seed 101 --seeds 4} $${ETA_FLAGS:-} --examples bin/eta-examples.ndjson
	@$$(tools/need.sh --python) tools/eta-train/train.py bin/eta-examples.ndjson > bin/eta-model.json.new
	@rm bin/eta-examples.ndjson && mv bin/eta-model.json.new bin/eta-model.json && echo "bin/eta-model.json" >&2

.PHONY: lint
lint: ## gofmt, go mod tidy, golangci-lint, luacheck and the shell scripts' syntax
	@tools/need.sh luacheck
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then printf 'gofmt would change:\n%s\n' "$$out" >&2; exit 1; fi
	@for s in $$(git ls-files '*.sh'); do bash -n "$$s" || exit 1; done
	@for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff) || { echo "$$m/go.mod is not tidy: run go mod tidy there" >&2; exit 1; }; done
	$(GO) run $(GOLANGCI) run ./...
	cd bench && $(GO) run $(GOLANGCI) run ./...
	cd deploy/helm/test && $(GO) run $(GOLANGCI) run ./...
	cd sdk/go && $(GO) run $(GOLANGCI) run ./...
	cd test/sdk && $(GO) run $(GOLANGCI) run ./...
	$(GO) test -count=1 -vet=off -run Luacheck ./lua

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 10s)
	@GO="$(GO)" tools/fuzz.sh "$(FUZZTIME)"

.PHONY: chart
chart: ## Render and validate the Helm chart
	@tools/chart.sh

.PHONY: simulate
simulate: ## Calculate the memory and calls of a queue of up to ten million; SIMULATE_CHECK=10000,1000000 fills such queues and compares, SIMULATE_FLAGS: bin/simulate --help
	@tools/need.sh redis-server
	@$(MAKE) --no-print-directory build
	@cd bench && $(GO) build -o ../bin/simulate ./simulate
	@bin/simulate $${SIMULATE_CHECK:+--check "$$SIMULATE_CHECK"} $${SIMULATE_FLAGS:-}

.PHONY: verify
verify: ## Regenerate the generated files and fail if that changes one
	$(GO) generate ./...
	@changed=$$(git status --porcelain); if [ -n "$$changed" ]; then \
		git --no-pager diff; printf 'make verify: these generated files differ from the committed ones:\n%s\n' "$$changed" >&2; exit 1; fi
