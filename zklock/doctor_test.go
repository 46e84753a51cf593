package zklock_test

import (
	"regexp"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestCheckWarnsOfLoneServer checks that Check shows the server's version, and
// warns of a server that is alone.
func TestCheckWarnsOfLoneServer(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	d := open(t, s.URL("", ""))
	defer d.Close()
	fs, err := d.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if f.Topic != "server" {
			continue
		}
		if f.Level != driver.Warning || f.Advice == "" || !regexp.MustCompile(`version 3\.\d+\.\d+\S*, standalone$`).MatchString(f.Detail) {
			t.Errorf("the server is judged as %+v", f)
		}
		return
	}
	t.Errorf("nothing is said of the server: %+v", fs)
}

// TestF107_ServerWithoutQuorumIsNotReady checks that a server that has proved
// to be ZooKeeper's, and now ends handshakes, is not ready, so that waiters go
// on waiting.
func TestF107_ServerWithoutQuorumIsNotReady(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Members: 3})
	d := open(t, s.URL("", ""))
	defer d.Close()
	join(t, d, ticket2("n", 1), driver.Held)
	s.Members[0].Kill()
	s.Members[1].Kill()
	until(t, "a Join says that the servers are not ready", func() bool {
		_, err := d.Join(t.Context(), ticket2("n", 2), false)
		_, waits := driver.IsNotReady(err)
		return waits && driver.ClassOf(err) == driver.Unavailable
	})
}
