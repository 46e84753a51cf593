package etcdlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF74_ClientCutOffReportsLoss cuts a client off from every member. It checks that the
// hold reports its loss before the lease can have ended, that the next client
// holds in time (G3), and that the first client works again afterwards.
//
// Covers: F14.
func TestF74_ClientCutOffReportsLoss(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		const ttl = 3 * time.Second
		s := servers.SharedEtcd(t, v)
		way := faultproxy.Between(t, s.Members[0].Addr())
		d, err := etcdlock.Open(ctx, "etcd://"+way.Addr()+"?prefix=cut/")
		if err != nil {
			t.Fatal(err)
		}
		a, b := locksOn(t, d, holdfast.WithTTL(ttl)), locks(t, s, "prefix=cut/", holdfast.WithTTL(ttl))
		h := lock(t, a, "n")
		time.Sleep(ttl / 2) // long enough for a renewal or two
		got := make(chan time.Time, 1)
		next := locking(t, b, "n")
		hold := make(chan *holdfast.Hold, 1)
		early := false // whether the hold was not lost when the next one began
		go func() {
			bh := <-next
			early = h.Err() == nil
			got <- time.Now()
			hold <- bh
		}()
		waiting(t, b, "n", 2)
		way.Split(true)
		cut := time.Now()
		lost(t, h, time.Minute)
		told := time.Now()
		if _, err := a.Mutex("n").TryLock(within(t, 20*time.Second)); err == nil || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock while cut off: %v", err)
		}
		granted := <-got
		t.Logf("told after %v, the next one held after %v", told.Sub(cut), granted.Sub(cut))
		if early {
			t.Errorf("the next one held while the first had not lost its hold, which was told %v later", told.Sub(granted))
		}
		if late := granted.Sub(cut) - ttl - ttl/20 - etcdlock.Granularity - 250*time.Millisecond; late > 10*time.Second { // allows for a busy machine
			t.Errorf("the next one held %v too late", late)
		}
		way.Heal()
		bh := taken(t, hold)
		if err := bh.Unlock(); err != nil {
			t.Error(err)
		}
		var again *holdfast.Hold
		eventually(t, "the client locks again", func() bool {
			again, err = a.Mutex("n").Lock(within(t, 30*time.Second))
			return err == nil
		})
		if again.Token() <= bh.Token() {
			t.Errorf("token %d after %d", again.Token(), bh.Token())
		}
		again.Unlock()
	})
}
