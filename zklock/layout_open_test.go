package zklock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestOpenRefusesALaterLayout checks that a root that a later version uses in another way
// is refused when it is opened, and left unchanged, that a layout that this version
// knows is accepted, and that the node is no queue.
func TestOpenRefusesALaterLayout(t *testing.T) {
	s := servers.SharedZooKeeper(t)
	conn, _, err := zk.Connect(s.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	root := unique("later-layout")
	path := ""
	for _, node := range []struct{ name, data string }{{root, ""}, {"holdfast", ""}, {"%layout", "2"}} {
		path += "/" + node.name
		if _, err := conn.Create(path, []byte(node.data), zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := zklock.Open(t.Context(), s.URL("/"+root, ""))
	if err == nil {
		_ = d.Close()
	}
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "node "+path+" is 2, this version knows 1; upgrade this program first") {
		t.Errorf("layout 2: %v", err)
	}
	data, stat, err := conn.Get(path)
	if err != nil || string(data) != "2" || stat.Version != 0 {
		t.Errorf("the node has changed: %q, %v, %v", data, stat, err)
	}
	if _, err := conn.Set(path, []byte("1"), -1); err != nil {
		t.Fatal(err)
	}
	d, err = zklock.Open(t.Context(), s.URL("/"+root, ""))
	if err != nil {
		t.Fatalf("layout 1: %v", err)
	}
	defer d.Close()
	for name, err := range d.Names(t.Context(), "") {
		t.Errorf("Names lists %q, %v", name, err)
	}
}
