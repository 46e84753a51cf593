package zklock_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF130_NamesBesideIdleLinesAndLargeValues checks Names among thousands of
// idle queues and large values of other programs: the names are listed, by one
// request for each path, and no value is read.
func TestF130_NamesBesideIdleLinesAndLargeValues(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"znode.container.checkIntervalMs=600000"}})
	look := raw(t, s.Addrs()...)
	d, w := openWire(t, s.Addrs(), s.Tick)
	want := []string{"a", "idle 1500 not", "z"}
	for i, name := range want {
		join(t, d, ticket2(name, i), driver.Held)
	}
	const idle, large, atOnce = 3000, 20, 500
	for from := 0; from < idle; from += atOnce {
		var ops []any
		for i := range atOnce {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("/holdfast/idle%d", from+i), Acl: zk.WorldACL(zk.PermAll)})
		}
		if _, err := look.Multi(ops...); err != nil {
			t.Fatal(err)
		}
	}
	value := bytes.Repeat([]byte("x"), 900_000)
	for i := range large {
		path := fmt.Sprintf("/holdfast/data%d", i)
		if i%2 > 0 {
			path = fmt.Sprintf("/holdfast/a/data%d", i) // beside a ticket
		}
		if _, err := look.Create(path, value, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	w.reset()
	begun := time.Now()
	var got []string
	for name, err := range d.Names(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	_, each := w.ops()
	t.Logf("%v for %d paths: %v", time.Since(begun), idle+large, each)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
	if lists := each[opChildren]; lists > idle+large+10 || each[opGet] > 0 {
		t.Errorf("it took %d listings and %d reads", lists, each[opGet])
	}
}
