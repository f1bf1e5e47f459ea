# hbtrace. `make` lists the targets. Go, as new as go.mod says, is all that `build` needs.

GO         ?= go
OUT        ?= out
STRESS_FOR ?= 2m
FUZZ_FOR   ?= 10s
export CGO_ENABLED = 0

.DEFAULT_GOAL := help
.PHONY: help build dist demo test check generate bench fuzz stress torture

help:
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' $(MAKEFILE_LIST) | expand -t 18

build: ## build bin/hbtrace, static, with the agent inside
	$(GO) build -trimpath -o bin/hbtrace ./cmd/hbtrace

dist: ## build tar.gz, .deb, .rpm and SBOM for amd64 and arm64 from the last commit, under dist/
	@scripts/dist.sh dist

demo: build ## record a small multi-threaded program; a report and pictures are left under out/
	@scripts/demo.sh $(OUT)

test: ## install what the tests need, then vet, check the format and run all tests
	@scripts/test-deps.sh
	@scripts/check-format.sh
	$(GO) vet ./...
	@scripts/test.sh

check: ## what CI runs: test, and that everything generated is fresh
	@.ci/run

generate: ## make generated files and the agent anew (needs gcc)
	$(GO) generate ./...

bench: ## run the Go benchmarks and the comparisons in bench/
	$(GO) test -run '^$$' -bench . -benchmem ./...
	@for b in hookcost backtrace overhead export; do $(GO) run ./bench/$$b || exit 1; done

fuzz: ## run every fuzz target for FUZZ_FOR (10s)
	@scripts/fuzz.sh $(FUZZ_FOR)

stress: ## run the TestStress… tests for STRESS_FOR (2m), and all under the race detector if there is a C compiler
	HBTRACE_STRESS=$(STRESS_FOR) $(GO) test -count=1 -timeout=2h -run Stress ./...
	@scripts/race.sh

torture: ## run stress-ng's stressors bare and recorded, and compare; some 15 minutes
	@scripts/torture.sh
