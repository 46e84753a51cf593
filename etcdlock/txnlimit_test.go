package etcdlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestFewOperations checks that servers that take few operations in a
// transaction get smaller requests, both from an opened driver and from one on
// a client of the user's. If they take too few, Open returns one error at once.
func TestFewOperations(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{Args: []string{"--max-txn-ops", "8"}})
	made, err := etcdlock.New(client(t, s, nil), &etcdlock.Options{Prefix: "few/"})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	opened := open(t, s, "prefix=few/")
	for what, d := range map[string]*etcdlock.Driver{"made": made, "opened": opened} {
		var refs []driver.Ref
		for i := range 30 { // without watches, each renewal reads its place
			tk := &driver.Ticket{ID: fmt.Sprint(what, ":", i), Name: fmt.Sprint(what, i), Units: 1, Limit: 3, TTL: time.Minute}
			if i%3 == 0 {
				tk.Owner = "somebody"
			}
			if p, err := d.Join(ctx, tk, i%2 == 0); err != nil || p.State != driver.Held {
				t.Fatalf("%s: Join: %+v, %v", what, p, err)
			}
			refs = append(refs, driver.Ref{Ticket: tk, State: driver.Held})
		}
		ps, err := d.Renew(ctx, refs)
		if err != nil {
			t.Fatalf("%s: Renew: %v", what, err)
		}
		for i, p := range ps {
			if p.Err != nil || p.State != driver.Held {
				t.Errorf("%s: Renew of number %d: %+v", what, i, p)
			}
		}
		if _, err := d.Leave(ctx, refs); err != nil {
			t.Errorf("%s: Leave: %v", what, err)
		}
	}
	// One writer leaves, and its release notifies twenty readers, which takes
	// more than one request.
	w := locks(t, s, "", holdfast.WithTTL(time.Hour))
	h, err := w.RWMutex("rw").Lock(within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	const readers = 20
	errs := make(chan error, readers)
	limit := within(t, time.Minute)
	for range readers {
		c := locks(t, s, "", holdfast.WithTTL(time.Hour))
		go func() {
			h, err := c.RWMutex("rw").RLock(limit)
			if err == nil {
				err = h.Unlock()
			}
			errs <- err
		}()
	}
	waiting(t, w, "rw", readers+1)
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	for range readers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}

	tiny := servers.Etcd(t, servers.EtcdOptions{Args: []string{"--max-txn-ops", "5"}})
	d, err := etcdlock.Open(within(t, time.Minute), tiny.URL(""))
	if err == nil {
		d.Close()
	}
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "--max-txn-ops") {
		t.Errorf("with 5 operations: %v (%v)", err, driver.ClassOf(err))
	}
}
