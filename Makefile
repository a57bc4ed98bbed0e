# Everything runs with Go, git and make; what else it needs is installed or named in a
# clear sentence (CONTRIBUTING.md). The scripts are in .ci/, one for each word.

BENCH = .
FUZZTIME = 10s
MUTATE_MIN = 90
CORETEST = ./internal/coretest
MUTATE = ./store/model ./store/kv ./internal/storeurl ./internal/lockview ./internal/localqueue ./internal/request ./watchdog \
	./internal/core=./internal/core,.,$(CORETEST)/faults,$(CORETEST)/handover,$(CORETEST)/leases,$(CORETEST)/lifecycle
COVER_MIN = 95
COVER = github.com/dlock-go/dlock \
	github.com/dlock-go/dlock/internal/core \
	github.com/dlock-go/dlock/internal/localqueue \
	github.com/dlock-go/dlock/internal/request \
	github.com/dlock-go/dlock/internal/lockview \
	github.com/dlock-go/dlock/internal/storeurl \
	github.com/dlock-go/dlock/internal/sinks \
	github.com/dlock-go/dlock/internal/cli \
	github.com/dlock-go/dlock/watchdog \
	github.com/dlock-go/dlock/store/memory \
	github.com/dlock-go/dlock/store/model \
	github.com/dlock-go/dlock/store/kv \
	github.com/dlock-go/dlock/store/redis=90 \
	github.com/dlock-go/dlock/store/quorum \
	github.com/dlock-go/dlock/fence \
	github.com/dlock-go/dlock/fence/redisfence

.PHONY: help test lint vuln bench bench-peers bench-quorum cover mutation mutants fuzz postgres-versions prove prove-long cc servers browser pictures dashboard-picture
.NOTPARALLEL:

help:
	@echo "make test     lint, then the tests of every module, with the race detector"
	@echo "make lint     gofmt, go vet, staticcheck, go mod tidy -diff in every module"
	@echo "make vuln     known vulnerabilities that the code of each module calls; needs vuln.go.dev"
	@echo "make bench    benchmarks (BENCH=regexp)"
	@echo "make bench-peers  dlock beside other libraries, into docs/benchmarks.md: a quarter of an hour"
	@echo "make bench-quorum the quorum store beside redsync, into docs/quorum.md: seven minutes"
	@echo "make cover    coverage of the core packages, at least $(COVER_MIN)% each"
	@echo "make mutation changes packages in one small place at a time; at least $(MUTATE_MIN)% have to be noticed in each (MUTATE=packages)"
	@echo "make mutants  the conformance suite against faulty stores, the simulation and some tests against planted faults"
	@echo "make fuzz     every fuzz target for FUZZTIME=$(FUZZTIME)"
	@echo "make postgres-versions  the tests of the PostgreSQL store on PostgreSQL 13 to 17, fetched with npm"
	@echo "make pictures the pictures of the page, into docs/images"
	@echo "make dashboard-picture  the picture of the dashboard, into docs/images; needs npm"
	@echo "make prove    what make test does a little of, in an hour at most; prove-long: more, in two and a quarter"

test: cc servers lint
	@.ci/test

lint:
	@.ci/lint

vuln:
	@.ci/vuln

bench: servers
	go test -run='^$$' -bench='$(BENCH)' -benchmem -timeout=30m ./...

bench-peers: servers
	cd integration && go run ./bench -w=../docs/benchmarks.md

bench-quorum: servers
	cd integration && go test -run=TestQuorum -timeout=1h -v ./peers -peers.quorum.reps=3 -peers.quorum.time=2s \
		-peers.quorum.lease=8s -peers.quorum.long=1m -peers.quorum.runs=10 -peers.quorum.write=quorum.md

cover: servers browser
	@.ci/cover $(COVER_MIN) $(COVER)

mutation:
	cd tools && go run ./mutate -least=$(MUTATE_MIN) $(MUTATE)

mutants: cc servers
	@go test -list=Mutant ./conformance/... | grep -q ^Test || { echo "no mutant tests found"; exit 1; }
	CGO_ENABLED=1 go test -race -shuffle=on -count=1 -v -run=Mutant ./conformance/...
	cd integration && go test -count=1 -timeout=30m -v ./mutants -mutants.all

fuzz: servers
	@.ci/fuzz $(FUZZTIME)

postgres-versions: servers
	@.ci/postgres-versions

prove: cc servers browser
	@.ci/prove

prove-long: cc servers browser
	@.ci/prove long

# The race detector needs a C compiler.
cc:
	@.ci/cc

# The browser that opens the page of package ui.
browser:
	@.ci/browser

pictures: browser
	cd integration && go test -count=1 -run=TestPageFits ./page -page.write=$(CURDIR)/docs/images

dashboard-picture: servers browser
	cd integration && go test -count=1 ./dashboard -dashboard.write=$(CURDIR)/docs/images/grafana.png

# The servers that tests start.
servers:
	@.ci/servers
