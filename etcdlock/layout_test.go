package etcdlock_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestTokenIsRevision checks that the token is the revision at which the
// ticket's key was made, for a ticket that waited, too. The core adds a byte to
// it for local hand-offs, which send no request.
func TestTokenIsRevision(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	a, b, cli := locks(t, s, "prefix=revision/"), locks(t, s, "prefix=revision/"), client(t, s, nil)
	check := func(h *holdfast.Hold) {
		t.Helper()
		r, err := cli.Get(ctx, "revision/n/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil || len(r.Kvs) == 0 {
			t.Fatalf("%v, %v", r, err)
		}
		if rev := uint64(r.Kvs[0].CreateRevision); h.Token()>>8 != rev {
			t.Errorf("the token is %d, of revision %d; the key was made by %d", h.Token(), h.Token()>>8, rev)
		}
	}
	h := lock(t, a, "n")
	check(h)
	got := locking(t, b, "n")
	waiting(t, a, "n", 2)
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	next := taken(t, got)
	check(next)
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestOneSession checks that all holds and waits of a client with one TTL share
// one lease, and all its leases one stream of keep-alives. A waiter costs no
// goroutine, no stream and no lease of its own. The test counts the goroutines
// of the whole process, and so runs alone.
func TestOneSession(t *testing.T) {
	s := servers.Etcd(t, servers.EtcdOptions{}) // no other test's leases
	cli := client(t, s, nil)
	first := open(t, s, "")
	var w wire
	d, err := etcdlock.New(client(t, s, &w), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Watch(ctx, func(string, driver.Status) {}); err != nil {
		t.Fatal(err)
	}
	const n = 200
	ttls := []time.Duration{2 * time.Minute, 3 * time.Minute, 4 * time.Minute}
	join := func(d *etcdlock.Driver, who string, i int, want driver.State) {
		t.Helper()
		tk := &driver.Ticket{ID: fmt.Sprint(who, ":", i), Name: fmt.Sprint("n", i%(n/2)), Units: 1, Limit: 1, TTL: ttls[i%len(ttls)]}
		if p, err := d.Join(ctx, tk, true); err != nil || p.State != want {
			t.Fatalf("Join of number %d: %+v, %v; want %v", i, p, err, want)
		}
	}
	for i := range n / 2 {
		join(first, "first", i, driver.Held)
	}
	for i := range len(ttls) { // the goroutines and streams that a driver starts once
		join(d, "d", i, driver.Waiting)
	}
	before := runtime.NumGoroutine()
	for i := len(ttls); i < n; i++ { // two in each queue
		join(d, "d", i, driver.Waiting)
	}
	for i := n; i < n+n/2; i++ { // and some holders
		tk := &driver.Ticket{ID: fmt.Sprint("d:", i), Name: fmt.Sprint("own", i), Units: 1, Limit: 1, TTL: ttls[i%len(ttls)]}
		if p, err := d.Join(ctx, tk, true); err != nil || p.State != driver.Held {
			t.Fatalf("Join: %+v, %v", p, err)
		}
	}
	time.Sleep(1200 * time.Millisecond) // until each waiter watches its predecessor's key
	if more := runtime.NumGoroutine() - before; more > n/10 {
		t.Errorf("%d goroutines more for %d tickets", more, n+n/2)
	}
	if a, b := w.beatStreams.Load(), w.watchStreams.Load(); a > 1 || b > 1 {
		t.Errorf("%d streams of keep-alives and %d of watches", a, b)
	}
	if b := w.beats.Load(); b > int64(10*len(ttls)) {
		t.Errorf("%d keep-alives for %d leases in seconds", b, len(ttls))
	}
	r, err := cli.Leases(ctx)
	if err != nil || len(r.Leases) != 2*len(ttls) {
		t.Errorf("two clients with %d TTLs have %d leases, %v", len(ttls), len(r.Leases), err)
	}
}

// TestBreakForeign checks that Inspect shows a foreign lock with its lease in
// hex as the id, and that Break accepts that id.
func TestBreakForeign(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	c, cli := locks(t, s, ""), client(t, s, nil)
	theirs := mutexOf(t, cli, "break-foreign")
	if err := theirs.Lock(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimPrefix(theirs.Key(), "break-foreign/")
	queue, err := c.Inspect(ctx, "break-foreign")
	if err != nil || len(queue.Holders)+len(queue.Waiters) != 1 || queue.Holders[0].ID != id {
		t.Fatalf("the line is %+v, %v; want the ticket %q", queue, err, id)
	}
	if err := c.Break(ctx, "break-foreign", id+"0"); !errors.Is(err, holdfast.ErrNoTicket) {
		t.Errorf("Break of nobody: %v", err)
	}
	if err := c.Break(ctx, "break-foreign", id); err != nil {
		t.Fatal(err)
	}
	h, err := c.Mutex("break-foreign").TryLock(ctx)
	if err != nil {
		t.Fatalf("after Break: %v", err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
}
