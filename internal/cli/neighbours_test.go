//go:build unix

package cli

import (
	"crypto/rand"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var neighbour = flag.String("cli.neighbour", "", "the `COMMAND` of another version, for TestNeighboursShareAStore; without it, this one")

// neighbourCommand prepares a process of the neighbour.
func neighbourCommand(t *testing.T, args ...string) *process {
	t.Helper()
	p := command(t, args...)
	if *neighbour != "" {
		p.cmd.Path = *neighbour
		p.cmd.Args[0] = *neighbour
	}
	return p
}

// neighbourStores are the stores of TestNeighboursShareAStore: all with another
// version's command, and otherwise two.
func neighbourStores() []where {
	stores := []where{
		{"sqlite", sqlite},
		{"redis", func(t *testing.T) string { return servers.SharedRedis(t).URL("") }},
	}
	if *neighbour == "" {
		return stores
	}
	return append(stores,
		where{"etcd", func(t *testing.T) string { return servers.SharedEtcd(t, servers.EtcdNewest).URL("") }},
		where{"postgres", func(t *testing.T) string { return servers.SharedPostgres(t).URL("postgres", "sslmode=disable") }},
		where{"mariadb", func(t *testing.T) string { return servers.SharedMariaDB(t).URL("holdfast", "") }},
		where{"zookeeper", func(t *testing.T) string { return servers.SharedZooKeeper(t).URL("", "") }},
	)
}

// TestNeighboursShareAStore checks that the commands of two versions share a store: each
// waits for the other, shows it and gets a greater token after it, both read at once
// under one read/write lock, and a slot that one has done is done for the other.
func TestNeighboursShareAStore(t *testing.T) {
	t.Parallel()
	if *neighbour != "" {
		if _, err := os.Stat(*neighbour); err != nil {
			t.Fatal(err)
		}
	}
	type starter func(t *testing.T, args ...string) *process
	for _, w := range neighbourStores() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			url := w.url(t)
			for pair, programs := range map[string][2]starter{
				"this first":  {command, neighbourCommand},
				"this second": {neighbourCommand, command},
			} {
				t.Run(pair, func(t *testing.T) {
					first := func(args ...string) *process { t.Helper(); return programs[0](t, args...).start() }
					second := func(args ...string) *process { t.Helper(); return programs[1](t, args...).start() }
					name := "neighbours-" + rand.Text() // stores outlast a test

					const script = "echo $HOLDFAST_TOKEN >token; " + untilStop
					holder := first(sh(url, "--note first "+name, script)...).says("out", "in\n")
					second(sh(url, "--no-wait "+name, "true")...).end().want(t, 75, "", "held by")
					second("--store", url, "show", name).end().want(t, 0, "(first)", "")
					waiter := second(sh(url, name, "echo $HOLDFAST_TOKEN >token")...).says("err", "waiting for "+name)
					holder.touch("stop")
					holder.end().want(t, 0, "", "")
					waiter.end().want(t, 0, "", "")
					if a, b := strings.TrimSpace(holder.read("token")), strings.TrimSpace(waiter.read("token")); a == "" || len(a) > len(b) || len(a) == len(b) && a >= b {
						t.Errorf("token %q after %q", b, a)
					}

					reader := first(sh(url, "--shared "+name+"/rw", untilStop)...).says("out", "in\n")
					second(sh(url, "--no-wait --shared "+name+"/rw", "true")...).end().want(t, 0, "", "")
					second(sh(url, "--no-wait --exclusive "+name+"/rw", "true")...).end().want(t, 75, "", "held by")
					second(sh(url, "--no-wait "+name+"/rw", "true")...).end().want(t, 78, "", "another kind")
					reader.touch("stop")
					reader.end().want(t, 0, "", "")

					slot := "--once-per 1h --slot 2026-11-23T12:00:00Z " + name + "/once"
					first(sh(url, slot, "echo done")...).end().want(t, 0, "done", "")
					if r := second(sh(url, slot, "echo again")...).end().want(t, 0, "", ""); r.out != "" {
						t.Errorf("a slot that was done ran again: %q", r.out)
					}
				})
			}
		})
	}
}
