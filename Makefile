# Everything runs with Go, git and make. The scripts are in .ci/, one for each word.

BENCH = .
FUZZTIME = 10s
ROUNDS = 10
COVER_MIN = 90
COVER = github.com/dlock-go/dlock \
	github.com/dlock-go/dlock/watchdog \
	github.com/dlock-go/dlock/store/memory \
	github.com/dlock-go/dlock/store/redis

.PHONY: help test lint bench cover mutants fuzz prove cc servers
.NOTPARALLEL:

help:
	@echo "make test     lint, then the tests of every module, with the race detector"
	@echo "make lint     gofmt, go vet, staticcheck, go mod tidy -diff in every module"
	@echo "make bench    benchmarks (BENCH=regexp)"
	@echo "make cover    coverage of the core packages, at least $(COVER_MIN)% each"
	@echo "make mutants  the conformance suite against its faulty stores"
	@echo "make fuzz     every fuzz target for FUZZTIME=$(FUZZTIME)"
	@echo "make prove    ROUNDS=$(ROUNDS) of all tests, and longer fuzzing"

test: cc servers lint
	@.ci/test

lint:
	@.ci/lint

bench: servers
	go test -run='^$$' -bench='$(BENCH)' -benchmem -timeout=30m ./...

cover: servers
	@.ci/cover $(COVER_MIN) $(COVER)

mutants: cc
	@go test -list=Mutant ./conformance/... | grep -q ^Test || { echo "no mutant tests found"; exit 1; }
	CGO_ENABLED=1 go test -race -shuffle=on -count=1 -v -run=Mutant ./conformance/...

fuzz: servers
	@.ci/fuzz $(FUZZTIME)

prove: cc servers
	@.ci/prove $(ROUNDS)
	@.ci/fuzz 60s

# The race detector needs a C compiler.
cc:
	@.ci/cc

# The servers that tests start.
servers:
	@.ci/servers
