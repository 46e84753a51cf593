package etcdlock_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestHundredClients checks that a hundred goroutines, each with a client and a
// connection of its own, count to an exact number, and that every holder has a
// greater token than the one before it.
func TestHundredClients(t *testing.T) {
	const clients, each = 100, 3
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	ms := make([]*holdfast.Mutex, clients)
	var opening sync.WaitGroup
	for i := range ms {
		opening.Go(func() {
			d, err := etcdlock.Open(ctx, s.URL("prefix=hundred/"))
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			ms[i] = locksOn(t, d).Mutex("n")
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	n, last := 0, uint64(0)
	var wg sync.WaitGroup
	for _, m := range ms {
		limit := within(t, 4*time.Minute)
		wg.Go(func() {
			for range each {
				h, err := m.Lock(limit)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				// Only the lock guards these variables.
				was := n
				if h.Token() <= last {
					t.Errorf("token %d after %d", h.Token(), last)
				}
				last = h.Token()
				runtime.Gosched()
				n = was + 1
				if err := h.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n != clients*each {
		t.Errorf("counted to %d, want %d", n, clients*each)
	}
}

// joinMany takes mutexes of different names with one driver.
func joinMany(t *testing.T, d *etcdlock.Driver, n int) []driver.Ref {
	t.Helper()
	refs := make([]driver.Ref, n)
	var wg sync.WaitGroup
	const callers = 32
	for c := range callers {
		wg.Go(func() {
			for i := c; i < n; i += callers {
				tk := &driver.Ticket{ID: fmt.Sprint("many:", i), Name: fmt.Sprint("n", i), Units: 1, Limit: 1, TTL: 10 * time.Minute}
				if p, err := d.Join(ctx, tk, true); err != nil || p.State != driver.Held {
					t.Errorf("Join: %+v, %v", p, err)
					return
				}
				refs[i] = driver.Ref{Ticket: tk, State: driver.Held}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return refs
}

// renewAll renews in batches of the core's size and returns the number of
// places that no longer hold.
func renewAll(t *testing.T, d *etcdlock.Driver, refs []driver.Ref) (gone int) {
	t.Helper()
	for len(refs) > 0 {
		n := min(len(refs), 100)
		ps, err := d.Renew(ctx, refs[:n])
		if err != nil {
			t.Fatalf("Renew: %v", err)
		}
		for i, p := range ps {
			switch {
			case p.State == driver.Gone:
				gone++
			case p.Err != nil || p.State != driver.Held || p.Lease < refs[i].TTL || p.Token == 0:
				t.Fatalf("Renew: %+v", p)
			}
		}
		refs = refs[n:]
	}
	return gone
}

// TestF64_ManyHolds checks that ten thousand locks held at once cost one lease,
// one stream of keep-alives and one of watches, no goroutine, and with each
// round of renewals at most 1.1 requests for a hundred of them. The next round
// also notices a deleted key that is not watched.
//
// Covers: F69.
func TestF64_ManyHolds(t *testing.T) {
	const n = 10_000
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	var w wire
	d, err := etcdlock.New(client(t, s, &w), &etcdlock.Options{Prefix: "many/"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Watch(ctx, func(string, driver.Status) {}); err != nil {
		t.Fatal(err)
	}
	refs := joinMany(t, d, 1)
	before := runtime.NumGoroutine()
	refs = append(refs, joinMany(t, d, n)[1:]...)
	cli := client(t, s, nil)
	if more := runtime.NumGoroutine() - before; more > 100 {
		t.Errorf("%d goroutines more for %d holds", more, n)
	}
	// Wait until the driver no longer reads young holds by itself, also after a
	// moment in which the process stood still.
	for last, quiet := int64(-1), 0; quiet < 6; time.Sleep(300 * time.Millisecond) {
		if calls := w.calls.Load(); calls != last {
			last, quiet = calls, 0
		} else {
			quiet++
		}
	}
	w.calls.Store(0)
	if gone := renewAll(t, d, refs); gone > 0 {
		t.Fatalf("%d places are gone", gone)
	}
	calls := w.calls.Load()
	t.Logf("%d requests renew %d holds", calls, n)
	if calls*100 > n*11/10 {
		t.Errorf("%d requests renew %d holds", calls, n)
	}
	if a, b := w.beatStreams.Load(), w.watchStreams.Load(); a > 1 || b > 1 {
		t.Errorf("%d streams of keep-alives and %d of watches", a, b)
	}
	if b := w.beats.Load(); b > 50 {
		t.Errorf("%d keep-alives for one lease in a few seconds", b)
	}
	if _, err := cli.Delete(ctx, "many/n9", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	// The prefix covers n9, n90 to n99, and so on. Some of the keys are
	// watched, and those losses are pushed at once.
	eventually(t, "1111 places are gone", func() bool { return renewAll(t, d, refs) == 1111 })
	// The end of the lease deletes the other keys.
	_, lease := keyOf(t, cli, "many/n1")
	if _, err := cli.Revoke(ctx, lease); err != nil {
		t.Fatal(err)
	}
}

// TestMixedRenew checks that a batch with all kinds of places, too large for
// one request, is answered place by place.
func TestMixedRenew(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	var w wire
	holder := open(t, s, "prefix=mixed-renew/")
	d, err := etcdlock.New(client(t, s, &w), &etcdlock.Options{Prefix: "mixed-renew/"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const each = 24
	join := func(d *etcdlock.Driver, id string, limit int64, owner string) driver.Ref {
		t.Helper()
		name, _, _ := strings.Cut(id, ":")
		tk := &driver.Ticket{ID: id, Name: name, Units: limit, Limit: limit, TTL: time.Minute, Owner: owner}
		p, err := d.Join(ctx, tk, true)
		if err != nil {
			t.Fatalf("Join: %v", err)
		}
		return driver.Ref{Ticket: tk, State: p.State}
	}
	var theirs, refs []driver.Ref
	for i := range each {
		for _, k := range []struct {
			name, owner string
			limit       int64
		}{{"m", "", 1}, {"s", "", 3}, {"o", "somebody", 1}, {"os", "somebody", 3}} {
			busy, free := fmt.Sprint(k.name, i), fmt.Sprint("free-", k.name, i)
			theirs = append(theirs, join(holder, busy+":1", k.limit, ""))
			refs = append(refs, join(d, busy+":2", k.limit, k.owner), join(d, free+":2", k.limit, k.owner))
		}
	}
	w.calls.Store(0)
	for b := refs; len(b) > 0; {
		n := min(len(b), 200)
		ps, err := d.Renew(ctx, b[:n])
		if err != nil {
			t.Fatalf("Renew: %v", err)
		}
		for i, p := range ps {
			want := driver.Held
			if i%2 == 0 {
				want = driver.Waiting
			}
			if p.Err != nil || p.State != want || p.Lease <= 0 {
				t.Errorf("%s: %+v, want %v", b[i].ID, p, want)
			}
		}
		b = b[n:]
	}
	t.Logf("%d requests for %d places", w.calls.Load(), len(refs))
	for _, end := range []struct {
		d    *etcdlock.Driver
		refs []driver.Ref
	}{{holder, theirs}, {d, refs}} {
		if _, err := end.d.Leave(ctx, end.refs); err != nil {
			t.Errorf("Leave: %v", err)
		}
	}
}
