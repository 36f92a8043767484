# What can be done with this tree. `make` alone prints it.
.DEFAULT_GOAL := help
SHELL := bash
BIN := $(CURDIR)/bin
STATICCHECK := v0.8.2
GOVULNCHECK := v1.9.0
GOTESTSUM := v1.13.0
BENCHSTAT := v0.0.0-20260908200009-22c9c6c9d4da
FUZZTIME ?= 60s
PLATFORMS ?= linux/amd64 linux/arm64 darwin/arm64
SOAK ?= 60s
POISONED ?= 10s
ATTACK ?= 10s
FOR ?= 1m
PROMISES ?= 1000000
REPLAYS ?= 100000
IMAGE ?= retryproxy:dev
LDFLAGS := -s -w
# The admin listener and the demo speak HTTP/1.1, and HTTP/2 of clients and upstreams is our own, so net/http's is left out (530 kB).
BUILD_TAGS := nethttpomithttp2
# go test with one line per package. No test is run again when it fails. `make lint` vets.
GOTEST = $(BIN)/gotestsum-$(GOTESTSUM) --format pkgname-and-test-fails --hide-summary skipped -- -vet=off
# One setting of both for all that is compiled, so that nothing is compiled once with and once without.
export CGO_ENABLED ?= 0
# Where Debian keeps ip, iptables, nginx and haproxy, which are not in the PATH of users.
export PATH := $(PATH):/usr/sbin:/sbin
export GOFLAGS ?= -trimpath

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 16

.PHONY: build
build: ## bin/retryproxy, static and stripped
	go build -tags $(BUILD_TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/retryproxy

.PHONY: ctl
ctl: ## bin/retryproxyctl: plan, simulate, plot, advise, inject, webhook, convert
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/retryproxyctl

.PHONY: otel
otel: ## bin/retryproxy-otel, the proxy with OpenTelemetry
	go build -ldflags '$(LDFLAGS)' -tags otel -o $(BIN)/retryproxy-otel ./cmd/retryproxy

.PHONY: demo
demo: build ## ten seconds of an upstream that fails, without retries and with retryproxy: what clients get
	$(BIN)/retryproxy demo --for 10s

.PHONY: quick
quick: ## the loop: build, vet and test what changed since HEAD (SINCE=main: since then)
	@bash .ci/quick $(SINCE)

.PHONY: test
test: compiler lint race vuln ## all tests with the race detector and the fuzz seeds, vet, staticcheck, govulncheck (needs gcc)
	@missing=; for program in curl ip iptables jq redis-server prometheus; do \
		command -v $$program >/dev/null || missing+=" $$program"; done; \
		[ -z "$$missing" ] || echo "Not installed, so the tests that need them were skipped:$$missing"
	@[ "$$(id -u)" = 0 ] || echo "Not root, so the tests that change networks were skipped"

# Asked first, since the race detector would miss it only after minutes.
.PHONY: compiler
compiler:
	@echo '#include <stdlib.h>' | $${CC:-gcc} -E -xc - >/dev/null 2>&1 || { \
		echo "The race detector needs a C compiler and its headers: apt-get install gcc libc6-dev" >&2; exit 1; }

# Code and tests of one goroutine that compute a lot: the race detector finds nothing there, and makes them ten times slower.
ONE_GOROUTINE := ./ctl/sim ./ctl/plot/... ./policy/backoff ./policy/retryafter ./ctl/inject

.PHONY: race
race: compiler $(BIN)/gotestsum-$(GOTESTSUM)
	CGO_ENABLED=1 $(GOTEST) -race -timeout 20m $$(go list ./... | grep -vxF "$$(go list $(ONE_GOROUTINE))")
	$(GOTEST) -timeout 20m $(ONE_GOROUTINE)

.PHONY: allocations
allocations: $(BIN)/gotestsum-$(GOTESTSUM) ## without the race detector, which takes pooled memory away: a request in steady state allocates nothing
	$(GOTEST) ./proxy ./proxy/tests/cost -count=1 -run 'DoesNotAllocate|KeepsLittleMemory'

.PHONY: poison
poison: $(BIN)/gotestsum-$(GOTESTSUM) ## the tests that have such a buffer, and a soak of POISONED (10s), with every buffer overwritten that goes back to a pool
	$(GOTEST) -tags poison -timeout 20m $$(go list -test -f '{{.ImportPath}} {{.Deps}}' ./... | grep -F proxy/internal/poison | sed -n 's/\.test .*//p')
	go build -tags poison -o $(BIN)/retryproxy-poison ./cmd/retryproxy
	go run ./bench/soak --for $(POISONED) --proxy $(BIN)/retryproxy-poison

# Emulated, because many kernels no longer run 32-bit programs. Two tests are left out that need TCP_INFO, which qemu does
# not translate.
.PHONY: cross
cross: ## other systems and word sizes: the programs build, and what reads the wire and decides is tested with 32 bits (needs qemu-user)
	GOARCH=arm go build -o /dev/null ./cmd/retryproxy
	GOARCH=arm64 go build -o /dev/null ./cmd/retryproxy
	GOOS=darwin GOARCH=arm64 go vet ./cmd/retryproxy ./proxy/...
	GOARCH=arm go test -exec qemu-arm -count=1 -skip '^(TestUnacknowledged|TestWhatTheKernelCounts)$$' ./proxy/http1 ./proxy/forward ./proxy/route ./proxy/internal/rawsocket ./policy ./metrics

.PHONY: lint
lint: $(BIN)/staticcheck-$(STATICCHECK) ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l .)" || { echo "not formatted by gofmt:"; gofmt -l .; exit 1; }
	go vet ./...
	go vet -tags otel ./cmd/retryproxy ./internal/serve
	go vet -tags small ./cmd/retryproxy ./internal/serve
	go build -tags small -o /dev/null ./cmd/retryproxyctl
	$(BIN)/staticcheck-$(STATICCHECK) ./...

.PHONY: vuln
vuln: $(BIN)/govulncheck-$(GOVULNCHECK) ## known vulnerabilities in what is called
	@bash .ci/vuln $(BIN)/govulncheck-$(GOVULNCHECK)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (60s)
	@bash .ci/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## benchmarks of the wire, the decisions and a proxied request
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-baseline
bench-baseline: ## the same six times, kept in bench/baseline.txt (on a quiet machine)
	bash .ci/bench record

.PHONY: bench-check
bench-check: $(BIN)/benchstat-$(BENCHSTAT) ## the same again, and what got more than 5 % worse than bench/baseline.txt
	bash .ci/bench check $<

.PHONY: instructions
instructions: ## user instructions a request, by function, which no other load disturbs (needs valgrind and wrk)
	go build -o $(BIN)/retryproxy-named ./cmd/retryproxy
	go run ./bench/peers --cases instructions --rounds 10 --proxy $(BIN)/retryproxy-named

.PHONY: path
path: ## the files that one request with one retry passes through, and how often it enters each
	go run ./tools/path 2>/dev/null

.PHONY: ownership
ownership: ## who writes whose fields, and that it is not more than before
	cd tools/ownership && go run . ../.. && go test -count=1 .

.PHONY: growth
growth: build ## cost per request against connections, routes, bodies, failing answers, fields (needs haproxy and wrk)
	go run -buildvcs=true ./bench/peers --growth connections,routes,response,request,failing,fields --rounds 3 --proxy $(BIN)/retryproxy --json $(BIN)/growth.json --png $(BIN)/growth.png

.PHONY: bench-peers
bench-peers: build ## CPU, memory and start beside HAProxy and nginx (needs them and wrk installed): the goals, met or not
	go run -buildvcs=true ./bench/peers --proxy $(BIN)/retryproxy --json $(BIN)/peers.json $(PEERS)

.PHONY: bench-llm
bench-llm: build ## RETRYPROXY_PROFILE=llm under the Go clients of OpenAI and Anthropic: directly, through HAProxy (if installed), through retryproxy
	cd bench/llm && go run -buildvcs=true . --proxy $(BIN)/retryproxy --json $(BIN)/llm.json $(LLM)

.PHONY: bench-llm-test
bench-llm-test: $(BIN)/gotestsum-$(GOTESTSUM) ## that bench-llm finds each broken promise, and none of retryproxy's
	cd bench/llm && go vet ./... && $(GOTEST) ./... -count=1 -timeout 10m

.PHONY: soak
soak: build ## SOAK (60s) of mixed load against an upstream that fails in every way
	go run ./bench/soak --for $(SOAK) --proxy $(BIN)/retryproxy

.PHONY: attacks
attacks: build ## floods, bombs, stalls, SSRF, smuggling, ATTACK (10s) each, while others are served (Linux)
	go run ./bench/attacks --for $(ATTACK) --proxy $(BIN)/retryproxy

.PHONY: promises
promises: ## PROMISES (a million) requests with random policies, failures and clients through the real loop, in virtual time
	go test ./proxy/tests/retry -count=1 -timeout 60m -run TestNeverMoreThanPromised -v -promises $(PROMISES)

.PHONY: replay
replay: ## REPLAYS (100 000) requests whose attempts fail anywhere, over both protocols: each attempt whole or visibly cut off
	go test ./proxy/tests/everyrule -count=1 -timeout 60m -run TestReplayIsExact -v -replays $(REPLAYS)

.PHONY: two-parsers
two-parsers: build ## FOR (1m) of odd requests, a quarter over HTTP/2: net/http, nginx and HAProxy read what is sent upstream alike (needs them installed)
	go run ./bench/twoparsers --for $(FOR) --proxy $(BIN)/retryproxy

.PHONY: storm
storm: build ## an outage with real processes: direct, through HAProxy (if installed), through retryproxy
	go run -buildvcs=true ./bench/storm --proxy $(BIN)/retryproxy --json $(BIN)/storm.json --png $(BIN)/storm.png \
		--through direct,$$(command -v haproxy >/dev/null && echo haproxy-retry,haproxy-tuned,)retryproxy

.PHONY: scorecard
scorecard: build ## all cases in which breaker and limit help or could harm, the goals, met or not, and the table in bench/scorecard/table.md (needs haproxy; SCORECARD="--only lockout")
	go run -buildvcs=true ./bench/scorecard --proxy $(BIN)/retryproxy --json $(BIN)/scorecard.json --docs bench/scorecard/table.md $(SCORECARD)

.PHONY: fleet
fleet: build ## fifty processes and one rate limit: alone, and together by way of a redis-server (needs it installed)
	go run -buildvcs=true ./bench/fleet --proxy $(BIN)/retryproxy --json $(BIN)/fleet.json --png $(BIN)/fleet.png $(FLEET)

.PHONY: restart
restart: build ## the row of faults that kills and restarts an upstream with 1000 requests in flight
	go run ./bench/faults --only "restart with" --proxy $(BIN)/retryproxy

.PHONY: e2e
e2e: build otel ## curl, nginx and Prometheus against the real binary (needs them installed)
	bash bench/e2e/run $(BIN)/retryproxy

.PHONY: image
image: ## the container image retryproxy:dev for this machine, compiled within golang:1.26
	bash deploy/image/build $(IMAGE)

.PHONY: images
images: ## retryproxy:dev-amd64 and -arm64, compiled with the Go of this machine: no registry is asked
	bash deploy/image/build $(IMAGE) amd64 arm64

.PHONY: image-full
image-full: ## the image with sharing and OpenTelemetry in it, retryproxy:dev-full
	TAGS=otel bash deploy/image/build $(IMAGE)-full

.PHONY: image-ctl
image-ctl: ## the webhook's image retryproxyctl:dev
	docker build -f deploy/image/ctl/Dockerfile --build-arg VERSION=$$(git describe --tags --always) -t retryproxyctl:dev .

.PHONY: stand-ins
stand-ins: ## golang:1.26 and the images of the compose tutorial, made from what this machine has, where no registry can be reached (needs dockerd, busybox-static, prometheus)
	bash deploy/test/stand-ins golang prometheus grafana

.PHONY: e2e-image
e2e-image: $(BIN)/gotestsum-$(GOTESTSUM) ## the image: the same twice, what is in it, how it runs (needs dockerd)
	E2E=image $(GOTEST) ./deploy/test/image -count=1 -timeout 30m

.PHONY: e2e-compose
e2e-compose: $(BIN)/gotestsum-$(GOTESTSUM) ## deploy/compose on the engine: what faults of the upstream and restarts cost clients (needs dockerd, docker-compose, prometheus)
	E2E=compose $(GOTEST) ./deploy/test/compose -count=1 -timeout 30m

.PHONY: e2e-pod
e2e-pod: $(BIN)/gotestsum-$(GOTESTSUM) ## what inject prints, run as containers that share one network (needs dockerd)
	E2E=pod $(GOTEST) ./deploy/test/pod -count=1 -timeout 30m

.PHONY: e2e-cluster
e2e-cluster: ## what docs/*/kubernetes*.md says, on a Kubernetes of one node (Linux, root, dockerd, nginx; compiles Kubernetes the first time). Not in check
	bash deploy/test/cluster/cluster.sh programs
	E2E=cluster go test -v -count=1 -timeout 90m ./deploy/test/cluster

.PHONY: e2e-page
e2e-page: build $(BIN)/gotestsum-$(GOTESTSUM) ## the page in a real browser (needs chromium installed)
	cd tools/page && RETRYPROXY=$(BIN)/retryproxy $(GOTEST) ./... -count=1 -timeout 15m

.PHONY: page-pictures
page-pictures: ctl ## docs/pictures/page-*.png, some three minutes of made-up trouble
	cd tools/page && RETRYPROXY=$(BIN)/retryproxy go test -count=1 -timeout 15m -run TestPictures . -pictures $(CURDIR)/docs/pictures

.PHONY: docs
docs: ## the tables generated from the code
	go run ./tools/docs

.PHONY: pictures
pictures: ctl ## docs/pictures, by the commands in docs/explanation/backoff.md and storm.md
	grep -hE '^retryproxyctl .*--png docs/pictures/' docs/explanation/backoff.md docs/explanation/storm.md | PATH="$(BIN):$$PATH" bash -eux

.PHONY: rules
rules: ## the alert rules, the dashboard's queries and those of docs/reference/queries.md, by promtool: syntax and unit tests
	promtool check rules deploy/prometheus/retryproxy.rules.yaml
	promtool test rules deploy/prometheus/*.test.yaml
	go run ./deploy/generate --query-tests >$(BIN)/queries.test.yaml
	promtool test rules $(BIN)/queries.test.yaml
	go run ./deploy/generate --queries >$(BIN)/dashboard-queries.yaml
	promtool check rules $(BIN)/dashboard-queries.yaml

.PHONY: dashboard
dashboard: ## deploy/grafana/dashboard.json and the PrometheusRule, from code
	go run ./deploy/generate

.PHONY: release
release: ## dist/: archives for PLATFORMS built twice and compared, bills of materials, licences checked, checksums
	bash .ci/release dist $(PLATFORMS)

.PHONY: supply
supply: ## the same for this platform and the proxy only, and go mod verify
	go mod verify
	COMMANDS=retryproxy bash .ci/release $(BIN)/dist $$(go env GOOS)/$$(go env GOARCH)

.PHONY: manifests
manifests: ## deploy/ rendered, decoded strictly into the Kubernetes API types, and validated by the API server's own code
	cd deploy/test-go && go test -vet=off ./... # vetting the Kubernetes API takes longer than all the rest

.PHONY: conformance
conformance: build ## some 800 raw HTTP/1.1 requests and responses through the real binary: what is forwarded, refused, and in which form
	RETRYPROXY=$(BIN)/retryproxy go test -count=1 ./bench/conformance

.PHONY: conformance-peers
conformance-peers: build ## the same beside HAProxy and nginx (needs them installed): docs/explanation/conformance.md
	RETRYPROXY=$(BIN)/retryproxy go test -count=1 ./bench/conformance -update -peers

.PHONY: interop
interop: $(BIN)/gotestsum-$(GOTESTSUM) ## gRPC's interoperability client and server, h2spec, h2load, git and WebSocket through the real binary (needs nghttp2-client)
	cd bench/interop && go vet ./... && $(GOTEST) ./... -count=1 -timeout 30m

FAULT ?= 3s
.PHONY: faults
faults: build ## one fault after another between clients, the proxy and its upstream, FAULT (3s) each (Linux; root, iproute2, iptables)
	go run -buildvcs=true ./bench/faults --for $(FAULT) --proxy $(BIN)/retryproxy $(FAULTS)

.PHONY: check
check: build ## what CI runs, and how long each part took
	bash .ci/check

$(BIN)/staticcheck-$(STATICCHECK):
	GOBIN=$(BIN) go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK)
	mv $(BIN)/staticcheck $@

$(BIN)/govulncheck-$(GOVULNCHECK):
	GOBIN=$(BIN) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	mv $(BIN)/govulncheck $@

$(BIN)/benchstat-$(BENCHSTAT):
	GOBIN=$(BIN) go install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT)
	mv $(BIN)/benchstat $@

$(BIN)/gotestsum-$(GOTESTSUM):
	GOBIN=$(BIN) go install gotest.tools/gotestsum@$(GOTESTSUM)
	mv $(BIN)/gotestsum $@
