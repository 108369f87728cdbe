# `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

# No cgo: one static binary that runs on any Linux of its architecture.
export CGO_ENABLED ?= 0

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# Packages whose goroutines meet: these run under the race detector too.
RACE := ./client ./verifier ./internal/serialport ./internal/wiring ./internal/blockdev ./internal/campaign ./internal/ledger ./internal/database/... ./internal/simdrive/... ./powerctl/... ./internal/hostcheck ./internal/check

.PHONY: help build demo demo-mariadb deps test test-long race bench lint clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

build: ## build bin/plugpull
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugpull ./cmd/plugpull

demo: build ## show a lying drive being caught, on the embedded bench: needs nothing
	@scripts/demo.sh

demo-mariadb: build ## show the experiment by hand on a throw-away MariaDB server
	@scripts/demo-mariadb.sh

deps: ## install what the tests need, where that is possible
	scripts/deps.sh

test: deps ## run every test but those of test-long; PLUGPULL_NO_SKIP=1 makes a skipped test an error
	go test -json -count=1 -timeout 20m -parallel 4 -skip '^TestLong' ./... | go run ./internal/testlog

test-long: deps ## run the tests that take hours
	PLUGPULL_LONG=1 go test -json -count=1 -timeout 3h -run Long ./... | go run ./internal/testlog

race: ## run the concurrent packages under the race detector (needs gcc)
	CGO_ENABLED=1 go test -json -race -short -count=1 -timeout 20m -skip '^TestLong' $(RACE) | go run ./internal/testlog

bench: deps ## run the benchmarks
	go test -run '^$$' -bench . -benchmem $$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -r -n1 dirname | sort -u)

lint: ## gofmt, vet, staticcheck, and go.mod as go mod tidy wants it
	@files="$$(gofmt -l $$(find . -name '*.go' -not -path './.git/*'))"; \
	if [ -n "$$files" ]; then printf 'not formatted, run gofmt -w:\n%s\n' "$$files"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	go mod tidy -diff
	go mod verify

clean: ## remove what the targets made
	rm -rf bin
