# Each target is one command; what it does is in scripts/ or in go test itself.

.PHONY: test lint bubble broken simulate stores docs build smoke

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

# Writes the generated parts of the documentation.
docs:
	go generate ./internal/docsgen

build:
	CGO_ENABLED=0 go build -o bin/holdfast ./cmd/holdfast

# A newcomer's first steps, in a clean clone of what is committed.
smoke:
	./scripts/smoke
