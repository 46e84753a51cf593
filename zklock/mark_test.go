package zklock_test

import (
	"path"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestF66_MarkLayoutGolden checks the node of a mark, byte for byte, that it is
// persistent, and that a value of another program in its place is refused and
// stays.
//
// Covers: F66 on zookeeper.
func TestF66_MarkLayoutGolden(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	d, err := zklock.Open(t.Context(), s.URL("", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	name := unique("mark")
	if err := d.SetMark(t.Context(), name, driver.Mark{Token: 1<<60 + 1, Value: []byte("a\nvalue")}); err != nil {
		t.Fatal(err)
	}
	line := lineOf(name)
	node := path.Join(path.Dir(line), "%marks", path.Base(line))
	data, stat, err := look.Get(node)
	if err != nil || string(data) != "hf1\n1152921504606846977\na\nvalue" || stat.EphemeralOwner != 0 {
		t.Fatalf("%s is %q, %+v, %v", node, data, stat, err)
	}
	for _, value := range []string{"", "hf1\n", "hf2\n1\n", "hf1\n1", "hf1\nx\n"} {
		if _, err := look.Set(node, []byte(value), -1); err != nil {
			t.Fatal(err)
		}
		_, err := d.Mark(t.Context(), name)
		set := d.SetMark(t.Context(), name, driver.Mark{Token: 1 << 62})
		if driver.ClassOf(err) != driver.Refused || err == nil || driver.ClassOf(set) != driver.Refused || set == nil {
			t.Errorf("%q: Mark %v, SetMark %v", value, err, set)
		}
		if data, _, err := look.Get(node); err != nil || string(data) != value {
			t.Errorf("%q has become %q, %v", value, data, err)
		}
	}
	if err := look.Delete(node, -1); err != nil {
		t.Error(err)
	}
}
