# Each target is one command; what it does is in scripts/ or in go test itself.

.PHONY: test lint bubble broken simulate stores fuzz docs build smoke bench bench-quick

# Everything, on a fresh Debian 12 machine too: see scripts/test.
test:
	./scripts/test

# What needs no server and takes seconds.
lint:
	./scripts/test format vet staticcheck docs layering

# The rungs of the ladder in CONTRIBUTING.md, from the bottom.
bubble:
	go test -race . ./memlock

broken:
	go test -race ./drivertest/...

simulate:
	go test ./check/sim -v -run Schedules -sim.schedules=20000

stores:
	go test -race -p 1 ./sqlitelock ./redislock ./redlock ./etcdlock ./zklock ./pglock ./mysqllock

# Each fuzz target for a minute; see scripts/fuzz.
fuzz:
	./scripts/fuzz

# Writes the generated parts of the documentation.
docs:
	go generate ./internal/docsgen

build:
	CGO_ENABLED=0 go build -o bin/holdfast ./cmd/holdfast

# A newcomer's first steps, in a clean clone of what is committed.
smoke:
	./scripts/smoke

# Holdfast beside its peers and beside the least that each server can do, on
# servers of its own, and then the tables and plots of docs/performance.md. The
# whole takes three quarters of an hour on two processors; STORES=etcd is one
# store.
bench:
	cd bench && go run . $(if $(STORES),-store $(STORES)) -out results
	cd bench && go run . -render results -docs ../docs

# A taste of each store, in a few minutes; it changes no page.
bench-quick:
	cd bench && go run . -quick -out ../.cache/bench-quick
