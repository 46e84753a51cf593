package etcdlock_test

import (
	"errors"
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestRecordOfLaterLayoutHoldsItsPlace checks that a key whose record has a version
// that this one does not know keeps its place in the queue: it is neither passed
// nor changed.
func TestRecordOfLaterLayoutHoldsItsPlace(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	c := locks(t, s, "prefix=later/")
	cli := client(t, s, nil)
	lease, err := cli.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	for kind, try := range map[string]func() (*holdfast.Hold, error){
		"%x-later":      func() (*holdfast.Hold, error) { return c.Mutex("n").TryLock(ctx) },
		"rw-1-%x-later": func() (*holdfast.Hold, error) { return c.RWMutex("n").TryLock(ctx) },
		"s3-3-%x-later": func() (*holdfast.Hold, error) { return c.Semaphore("n", 3).TryAcquire(ctx, 1) },
	} {
		key, value := "later/n/"+fmt.Sprintf(kind, lease.ID), "hf2\nof another kind\n"
		if _, err := cli.Put(ctx, key, value, clientv3.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
		if _, err := try(); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("%s: with its place taken: %v", key, err)
		}
		r, err := cli.Get(ctx, "later/n/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Kvs) != 1 || string(r.Kvs[0].Key) != key || string(r.Kvs[0].Value) != value {
			t.Errorf("%s: there are now %v", key, r.Kvs)
		}
		if _, err := cli.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		h, err := try()
		if err != nil {
			t.Fatalf("%s: after it has gone: %v", key, err)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	}
}
