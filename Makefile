# What can be done with this tree. `make` alone prints it.
.DEFAULT_GOAL := help
SHELL := bash
BIN := $(CURDIR)/bin
STATICCHECK := v0.8.2
GOVULNCHECK := v1.8.0
FUZZTIME ?= 60s
SOAK ?= 60s
LDFLAGS := -s -w
export CGO_ENABLED ?= 0

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 16

.PHONY: build
build: ## bin/retryproxy and bin/retryproxy-plot, static and stripped
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/retryproxy ./cmd/retryproxy-plot

.PHONY: test
test: lint vuln ## all tests with the race detector and the fuzz seeds, vet, staticcheck, govulncheck
	CGO_ENABLED=1 go test -race ./...

.PHONY: lint
lint: $(BIN)/staticcheck-$(STATICCHECK) ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l .)" || { echo "not formatted by gofmt:"; gofmt -l .; exit 1; }
	go vet ./...
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

.PHONY: soak
soak: build ## SOAK (60s) of mixed load against an upstream that fails in every way
	go run ./bench/soak --for $(SOAK) --proxy $(BIN)/retryproxy

.PHONY: storm
storm: build ## an outage with real processes: direct, through HAProxy (if installed), through retryproxy
	go run -buildvcs=true ./bench/storm --proxy $(BIN)/retryproxy --json $(BIN)/storm.json --png $(BIN)/storm.png \
		--through direct,$$(command -v haproxy >/dev/null && echo haproxy-retry,haproxy-tuned,)retryproxy

.PHONY: e2e
e2e: build ## curl, nginx and Prometheus against the real binary (needs them installed)
	bash bench/e2e/run $(BIN)/retryproxy

.PHONY: docs
docs: ## the tables generated from the code
	go run ./cmd/retryproxy docs

.PHONY: pictures
pictures: build ## docs/pictures, by the commands in docs/tuning.md
	grep -E '^retryproxy .*--png docs/pictures/' docs/tuning.md | PATH="$(BIN):$$PATH" bash -eux

.PHONY: check
check: test e2e ## what CI runs
	$(MAKE) soak SOAK=10s

$(BIN)/staticcheck-$(STATICCHECK):
	GOBIN=$(BIN) go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK)
	mv $(BIN)/staticcheck $@

$(BIN)/govulncheck-$(GOVULNCHECK):
	GOBIN=$(BIN) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)
	mv $(BIN)/govulncheck $@
