package etcdlock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF130_NamesBesideLargeValues checks that Names lists all names, and reads
// no value, if other programs keep large values in the same store, also under
// keys that look like a lock's.
func TestF130_NamesBesideLargeValues(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{})
	cli := dialed(t, s)
	large := strings.Repeat("x", 1_200_000)
	for i := range 60 {
		key := fmt.Sprintf("data/%02d", i)
		if i%3 == 0 {
			key = fmt.Sprintf("data%d/%x", i, 1000+i) // looks as if it ended with a lease
		}
		if _, err := cli.Put(ctx, key, large); err != nil {
			t.Fatal(err)
		}
	}
	d, err := etcdlock.New(cli, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := []string{"a", "data5", "z"}
	for i, name := range want {
		tk := &driver.Ticket{ID: fmt.Sprintf("bulk:%d", i), Name: name, Units: 1, Limit: 1, TTL: time.Minute}
		if p, err := d.Join(ctx, tk, true); err != nil || p.State != driver.Held {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	var got []string
	for name, err := range d.Names(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
}
