# Each target is one command; what it does is in scripts/ or in go test itself.

.PHONY: lint fast test soak bubble broken simulate once-simulated once proof proof-release proof-traces proof-torture proof-pictures proof-edges stores versions clients serve-costs page terraform fuzz docs build smoke bench bench-quick scale

# The four rungs of CONTRIBUTING.md, from the bottom. docs/testing-lanes.md has the
# other targets.

# The checks of the source and of the documentation, without tests.
lint:
	./scripts/test format vet staticcheck docs layering

# The tests that need no server.
fast: bubble broken simulate

# Everything, on a fresh Debian 12 machine too: see scripts/test.
test:
	./scripts/test

# Long runs: WHAT=splits is one of them, and FOR=10m its length. Without WHAT the
# target lists the runs and their commands.
soak:
	@FOR=$(FOR) ./scripts/soak $(WHAT)

# The core and memlock, hours of fake time in milliseconds.
bubble:
	go test -race . ./memlock

# The suite on drivers with a planted flaw: each must fail the case named for it.
broken:
	go test -race ./drivertest ./internal/testkit/broken

# Schedules of requests, answers, pushes and faults in fake time, each from a seed.
simulate:
	go test ./internal/safety/sim -v -run 'Schedules|Closing' -sim.schedules=20000

# 10,000 slots of jobs that 50 hosts start with Once, in fake time, with kills and
# pauses; SEED=7 is another run.
once-simulated:
	go test ./internal/safety/once -v -timeout 60m -run EachSlot -once.slots=10000 -once.seed=$(or $(SEED),1)

# 1,000 slots of 20 jobs that 50 hosts start with Once on a real store, with kills
# and pauses, in some five minutes: STORE=redis://localhost:6379 is the store, and
# for STORE=sqlite, redis, sentinel, cluster, etcd, zk, postgres, mariadb or nats it
# starts one of its own. On NATS the leases are longer, and it takes 25 minutes.
once:
ifeq ($(STORE),nats)
	go test ./tests/natslock -v -run SlotsOnNATS -timeout 45m -once.all -once.ttl=30s -once.seed=$(or $(SEED),1) -once.hosts=$(or $(HOSTS),50)
else
	go test ./internal/safety/once -v -run OnAStore -timeout 30m -once.store=$(STORE) -once.seed=$(or $(SEED),1) -once.hosts=$(or $(HOSTS),50)
endif

# The specifications, their mutants and what must be reachable, by the model
# checker TLC; see docs/proof. It needs Java, and gets TLC by scripts/proof-tools.
proof:
	go run ./internal/proof

proof-release:
	go run ./internal/proof -release -result proof/RESULT.md
	go run ./internal/proof -traces 20000 -result proof/RESULT.md

# Requests to stores in memory, as they were carried out, against the specification:
# 2,000 traces, of which each schedule has two.
proof-traces:
	go run ./internal/proof -traces $(or $(SCHEDULES),1000)

# Requests of a torture of real stores, as the store carried them out, against the
# specification; STORES=sqlite,cut=redis DURATION=5m SEED=2 for others.
proof-torture:
	go run ./internal/proof -torture $(or $(STORES),all) -torture-for $(or $(DURATION),30s) -torture-seed $(or $(SEED),1)

# Writes the counterexamples of what is not promised, and their pictures.
proof-pictures:
	go run ./internal/proof -pictures

# Writes the walks over all edges of module Seam, which drivertest plays.
proof-edges:
	go run ./internal/proof -edges write
	go test ./drivertest -run '^TestEdgesOfOtherCases$$' -edges.write -count 1

# The suite, faults and several processes on each real store.
stores:
	go test -race -gcflags=modernc.org/sqlite/lib=-race=false -p 1 ./sqlitelock ./redislock ./redlock ./etcdlock ./zklock ./pglock ./mysqllock

# The stores' tests on newer servers, which nobody has to install; see
# scripts/versions. SERVERS="mysql-9 valkey-9" are some of them.
versions:
	./scripts/versions $(SERVERS)

# The clients in other languages: their own tests, their mutants, and an exact count
# by all of them.
clients:
	./scripts/languages

# What a lock server adds to a lock on a Redis of its own, and the memory of holds and
# waits.
serve-costs:
	go test -count=1 -v ./lockserver ./tests/lockserver -run 'TestCosts|TestHandOff' -lockserver.costs

# The page of a lock server in Debian's Chromium: keyboard, screen reader, texts that
# are markup, breaks, and 10,000 queues; it writes the pictures of docs/serve.md.
page:
	go test -count=1 -v ./lockserver/internal/page -page -page.pictures $(abspath docs)

# The sessions of docs/recipes.md with Terraform, and what the page says of it. It uses
# the Terraform that scripts/terraform finds, or builds in some minutes.
terraform:
	program=$$(./scripts/terraform) && go test -count=1 -v ./internal/docsgen -run '^TestTerraform$$' -terraform $$program

# Each fuzz target for a minute; see scripts/fuzz.
fuzz:
	./scripts/fuzz

# Writes the generated parts of the documentation.
docs:
	go generate ./internal/docsgen

build:
	CGO_ENABLED=0 go build -o bin/holdfast ./cmd/holdfast

.PHONY: release release-trial

# All files of a version, in dist/VERSION or OUT: binaries, packages, an image and
# what belongs to them; see docs/releases.md. It publishes and tags nothing.
# ONLY=linux/amd64 makes some of them.
release:
	cd release && GOWORK=off go run . -version $(or $(VERSION),v0.0.0-dev) -out $(abspath $(or $(OUT),dist/$(or $(VERSION),v0.0.0-dev))) $(if $(ONLY),-only $(ONLY))

# Publishes the modules in a file tree, for programs that take them from there. Then makes
# two releases of the last commit, compares them, and installs and uses what is in
# them; that needs root, and says which packages are missing.
release-trial:
	cd release && export GOWORK=off && go vet ./... && go test . && go test ./rehearsal -v -timeout 60m && go test ./trial -v -timeout 60m $(if $(ONLY),-trial.only=$(ONLY))

# A newcomer's first steps, in a clean clone of what is committed.
smoke:
	./scripts/smoke

# Holdfast beside its peers and beside the least that each server can do, on
# servers of its own, and then the tables and plots of docs/performance.md. The
# whole takes three quarters of an hour on two processors; STORES=etcd is one
# store, and STORES=command what `holdfast run` costs.
bench:
	cd bench && GOWORK=off go run . $(if $(STORES),-store $(STORES)) -out results
	cd bench && GOWORK=off go run . -render results -docs ../docs

# What grows with names, holds, waiters and clients, on one server of each store, in
# some hour; and the tables of docs/scale.md. STORES=redis,etcd are some of them.
scale:
	cd bench && GOWORK=off go run . -scale $(if $(STORES),-store $(STORES)) -out results/scale
	cd bench && GOWORK=off go run . -scale -render results/scale -docs ../docs

# A taste of each store, in a few minutes; it changes no page.
bench-quick:
	cd bench && GOWORK=off go run . -quick -out ../.cache/bench-quick
