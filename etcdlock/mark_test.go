package etcdlock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF66_MarkLayoutGolden checks the key and the value of a mark, byte for byte,
// that it has no lease, and that a value of another program in its place is
// refused and stays.
//
// Covers: F66 on etcd.
func TestF66_MarkLayoutGolden(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	d, cli := open(t, s, "prefix=marks/"), client(t, s, nil)
	if err := d.SetMark(ctx, "a/b", driver.Mark{Token: 1<<60 + 1, Value: []byte("a\nvalue")}); err != nil {
		t.Fatal(err)
	}
	const key = "marks/%d/a%2Fb"
	r, err := cli.Get(ctx, key)
	if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != "hf1\n1152921504606846977\na\nvalue" || r.Kvs[0].Lease != 0 {
		t.Fatalf("%v, %v", r, err)
	}
	for _, value := range []string{"", "hf1\n", "hf2\n1\n", "hf1\n1", "hf1\nx\n"} {
		if _, err := cli.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
		_, err := d.Mark(ctx, "a/b")
		set := d.SetMark(ctx, "a/b", driver.Mark{Token: 1 << 62})
		if driver.ClassOf(err) != driver.Refused || err == nil || driver.ClassOf(set) != driver.Refused || set == nil {
			t.Errorf("%q: Mark %v, SetMark %v", value, err, set)
		}
		if r, err := cli.Get(ctx, key); err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != value {
			t.Errorf("%q has become %v, %v", value, r, err)
		}
	}
	if _, err := cli.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
}
