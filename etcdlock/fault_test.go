package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lost waits until a hold has reported its loss.
func lost(t testing.TB, h *holdfast.Hold, limit time.Duration) {
	t.Helper()
	select {
	case <-h.Context().Done():
		if !errors.Is(context.Cause(h.Context()), holdfast.ErrLost) {
			t.Errorf("the hold ended with %v", context.Cause(h.Context()))
		}
	case <-time.After(limit):
		t.Errorf("no loss was told in %v", limit)
	}
}

func lock(t testing.TB, c *holdfast.Client, name string, opts ...holdfast.Option) *holdfast.Hold {
	t.Helper()
	h, err := c.Mutex(name, opts...).Lock(within(t, 3*time.Minute))
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return h
}

// locking locks in the background; taken waits for the result.
func locking(t testing.TB, c *holdfast.Client, name string) <-chan *holdfast.Hold {
	got := make(chan *holdfast.Hold, 1)
	limit := within(t, 5*time.Minute)
	go func() {
		h, err := c.Mutex(name).Lock(limit)
		if err != nil {
			t.Errorf("Lock: %v", err)
		}
		got <- h
	}()
	return got
}

func taken(t testing.TB, got <-chan *holdfast.Hold) *holdfast.Hold {
	t.Helper()
	h := <-got
	if h == nil {
		t.FailNow()
	}
	return h
}

// keyOf returns the key of the only place in a queue.
func keyOf(t testing.TB, cli *clientv3.Client, queue string) (key string, lease clientv3.LeaseID) {
	t.Helper()
	r, err := cli.Get(ctx, queue+"/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("line %s: %v, %v", queue, r, err)
	}
	return string(r.Kvs[0].Key), clientv3.LeaseID(r.Kvs[0].Lease)
}

// leaseOf returns what the server says of the lease of the only place in a queue,
// nil if the place or the lease has ended.
func leaseOf(cli *clientv3.Client, queue string) (*clientv3.LeaseTimeToLiveResponse, error) {
	kvs, err := cli.Get(ctx, queue+"/", clientv3.WithPrefix())
	if err != nil || len(kvs.Kvs) != 1 {
		return nil, err
	}
	r, err := cli.TimeToLive(ctx, clientv3.LeaseID(kvs.Kvs[0].Lease))
	if err != nil || r.TTL < 0 {
		return nil, err
	}
	return r, nil
}

// TestF81_RevokedLease ends the lease of a hold, as an operator or an old
// leader might. It checks that the hold reports the loss at once, long before
// the next renewal, and that the next lock has another lease (F87 in spirit).
//
// Covers: F69.
func TestF81_RevokedLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		c, cli := locks(t, s, "prefix=revoked/"), client(t, s, nil)
		h := lock(t, c, "n", holdfast.WithTTL(time.Hour))
		_, lease := keyOf(t, cli, "revoked/n")
		if _, err := cli.Revoke(ctx, lease); err != nil {
			t.Fatal(err)
		}
		lost(t, h, time.Minute)
		again := lock(t, c, "n", holdfast.WithTTL(time.Hour))
		if again.Token() <= h.Token() {
			t.Errorf("token %d after %d", again.Token(), h.Token())
		}
		if err := again.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// TestF69_DeletedKey deletes the key of a hold. It checks that the hold reports
// the loss long before the next renewal, and that the lease, which other holds
// may use, goes on.
//
// Covers: F37.
func TestF69_DeletedKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		c, cli := locks(t, s, "prefix=deleted/", holdfast.WithTTL(time.Hour)), client(t, s, nil)
		other, h := lock(t, c, "other"), lock(t, c, "n")
		key, _ := keyOf(t, cli, "deleted/n")
		if _, err := cli.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		lost(t, h, time.Minute)
		if err := other.Err(); err != nil {
			t.Errorf("another hold of the client: %v", err)
		}
		// The wake key may be deleted, too: the next wake-up makes it again,
		// and its loss does not mean the loss of the lease.
		if _, err := cli.Delete(ctx, "deleted/%w/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		b := locks(t, s, "prefix=deleted/", holdfast.WithTTL(time.Hour))
		done := make(chan *holdfast.Hold, 1)
		bh := lock(t, b, "m")
		go func() { done <- lock(t, c, "m") }()
		waiting(t, b, "m", 2)
		if err := bh.Unlock(); err != nil {
			t.Error(err)
		}
		taken(t, done).Unlock()
		if err := other.Err(); err != nil {
			t.Errorf("after its wake key was deleted: %v", err)
		}
	})
}

// TestF68_WaiterRevoked ends the lease of a waiter before its turn. It checks
// that the waiter never holds by the lost place, and gets its turn by a new
// one.
func TestF68_WaiterRevoked(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		a, b, cli := locks(t, s, "prefix=waiter/"), locks(t, s, "prefix=waiter/"), client(t, s, nil)
		h := lock(t, a, "n")
		_, own := keyOf(t, cli, "waiter/n")
		got := locking(t, b, "n")
		waiting(t, a, "n", 2)
		r, err := cli.Get(ctx, "waiter/n/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			if clientv3.LeaseID(kv.Lease) != own {
				if _, err := cli.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil {
					t.Fatal(err)
				}
			}
		}
		waiting(t, a, "n", 2) // it has joined again
		select {
		case <-got:
			t.Fatal("it holds beside another")
		default:
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		bh := taken(t, got)
		if bh.Token() <= h.Token() {
			t.Errorf("token %d after %d", bh.Token(), h.Token())
		}
		if err := bh.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// TestF70_LocksWorkWhileHistoryIsCompacted checks that locks work while history is compacted all the
// time.
func TestF70_LocksWorkWhileHistoryIsCompacted(t *testing.T) {
	t.Parallel()
	s := servers.Etcd(t, servers.EtcdOptions{})
	cli := client(t, s, nil)
	stop, end := context.WithCancel(ctx)
	defer end()
	go func() {
		for stop.Err() == nil {
			if r, err := cli.Get(stop, "x"); err == nil {
				cli.Compact(stop, r.Header.Revision)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	n := 0
	errs := make(chan error, 4)
	for range 4 {
		c := locks(t, s, "", holdfast.WithTTL(15*time.Second))
		go func() {
			var err error
			for range 25 {
				err = errors.Join(err, c.Do(ctx, "n", func(context.Context) error {
					n++
					time.Sleep(time.Duration(n%5) * 10 * time.Millisecond)
					return nil
				}))
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n != 100 {
		t.Errorf("counted to %d", n)
	}
	// The server restarts, and the revisions that the watches had seen are
	// compacted.
	a, b := locks(t, s, ""), locks(t, s, "")
	h := lock(t, a, "m")
	got := locking(t, b, "m")
	waiting(t, a, "m", 2)
	time.Sleep(1500 * time.Millisecond) // until its predecessor is watched
	s.Members[0].Restart(t)
	eventually(t, "the hold is released", func() bool { return h.Unlock() == nil || h.Err() != nil })
	taken(t, got).Unlock()
}

// TestF76_FullStore checks that a store that takes no data renews, releases,
// hands the lock on, and reports the reason when it refuses a lock.
func TestF76_FullStore(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.Etcd(t, servers.EtcdOptions{Version: v, Args: []string{"--quota-backend-bytes", "4000000"}})
		a, b := locks(t, s, "", holdfast.WithTTL(12*time.Second)), locks(t, s, "", holdfast.WithTTL(12*time.Second))
		h := lock(t, a, "n")
		got := locking(t, b, "n")
		waiting(t, a, "n", 2)
		cli := client(t, s, nil)
		for i := 0; ; i++ {
			if _, err := cli.Put(ctx, fmt.Sprint("junk", i), strings.Repeat("x", 100_000)); err != nil {
				break
			}
		}
		time.Sleep(4500 * time.Millisecond) // longer than until a renewal
		if err := h.Err(); err != nil {
			t.Fatalf("in a full store: %v", err)
		}
		if _, err := a.Mutex("other").Lock(within(t, 20*time.Second)); err == nil || !strings.Contains(err.Error(), "space") {
			t.Errorf("Lock in a full store: %v", err)
		}
		if err := h.Unlock(); err != nil {
			t.Errorf("Unlock in a full store: %v", err)
		}
		if err := taken(t, got).Unlock(); err != nil {
			t.Errorf("Unlock in a full store: %v", err)
		}
	})
}

// TestF79_SharedClient checks that two drivers on one client of the user's are
// two clients of the store, and that closing one leaves the other open.
//
// Covers: F56.
func TestF79_SharedClient(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	cli := client(t, s, nil)
	open := func() *holdfast.Client {
		d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "shared/"})
		if err != nil {
			t.Fatal(err)
		}
		return locksOn(t, d)
	}
	a, b := open(), open()
	h := lock(t, a, "n")
	if _, err := b.Mutex("n").TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("TryLock: %v", err)
	}
	other := lock(t, b, "other")
	if err := other.Unlock(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := cli.Get(ctx, "x"); err != nil {
		t.Errorf("the user's client: %v", err)
	}
}

// TestF80_LeaseIsLongEnough checks that a TTL that is not in whole seconds is
// rounded up, and that a claim never exceeds the lease that the server granted.
func TestF80_LeaseIsLongEnough(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	cli := client(t, s, nil)
	d := open(t, s, "prefix=long/")
	ttls := []time.Duration{time.Second, 1200 * time.Millisecond, 2999 * time.Millisecond, 25 * time.Second}
	for i := 0; len(ttls) > 0; i++ {
		ttl, begun := ttls[0], time.Now()
		tk := &driver.Ticket{ID: fmt.Sprint("x:", i), Name: fmt.Sprint("n", i), Units: 1, Limit: 1, TTL: ttl}
		p, err := d.Join(ctx, tk, true)
		if err != nil || p.Lease < ttl {
			t.Fatalf("TTL %v: %+v, %v", ttl, p, err)
		}
		r, err := leaseOf(cli, "long/"+tk.Name)
		if err == nil && r == nil && time.Since(begun) > ttl && i < 100 {
			continue // the machine stood still, and the lease has ended
		}
		if err != nil || r == nil {
			t.Fatalf("TTL %v: the lease is %v, %v", ttl, r, err)
		}
		ttls = ttls[1:]
		granted := time.Duration(r.GrantedTTL) * time.Second
		if granted < driver.Keep(ttl) || p.Lease > granted {
			t.Errorf("TTL %v: granted %v, promised %v", ttl, granted, p.Lease)
		}
	}
}
