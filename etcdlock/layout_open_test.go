package etcdlock_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestOpenRefusesALaterLayout checks that a prefix that a later version uses in another
// way is refused when it is opened, and left unchanged, that a layout that this version
// knows is accepted, and that the key is no queue.
func TestOpenRefusesALaterLayout(t *testing.T) {
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	cli := dialed(t, s)
	const key = "later-layout/%layout"
	put := func(layout string) int64 {
		t.Helper()
		r, err := cli.Put(t.Context(), key, layout)
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	revision := put("2")
	d, err := etcdlock.Open(t.Context(), s.URL("prefix=later-layout/"))
	if err == nil {
		_ = d.Close()
	}
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "key "+key+" is 2, this version knows 1; upgrade this program first") {
		t.Errorf("layout 2: %v", err)
	}
	if r, err := cli.Get(t.Context(), key); err != nil || len(r.Kvs) != 1 || r.Kvs[0].ModRevision != revision {
		t.Errorf("the key has changed: %v, %v", r, err)
	}
	put("1")
	d, err = etcdlock.Open(t.Context(), s.URL("prefix=later-layout/"))
	if err != nil {
		t.Fatalf("layout 1: %v", err)
	}
	defer d.Close()
	for name, err := range d.Names(t.Context(), "") {
		t.Errorf("Names lists %q, %v", name, err)
	}
	if _, err := cli.Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
}
