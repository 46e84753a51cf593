package zklock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestLeaveWithoutConnectionIsUnknown checks what a Leave answers that is not sent for
// lack of a connection: the driver repeats it as soon as there is one, so that nobody
// may be told that it is surely not carried out.
func TestLeaveWithoutConnectionIsUnknown(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	p := faultproxy.Between(t, s.Members[0].Addr())
	d, err := zklock.Connect(t.Context(), []string{p.Addr()}, &zklock.Options{Tick: 2 * s.Tick})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	others, _ := openWire(t, s.Addrs(), 2*s.Tick)
	name := unique("leave-away")
	holder, waiter := ticket(name, 1), ticket(name, 2)
	join(t, others, holder, driver.Held)
	join(t, d, waiter, driver.Waiting)
	p.Split(true)
	p.Cut(faultproxy.Close)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: waiter}})
		if err == nil {
			err = ps[0].Err
		}
		if err == nil || driver.ClassOf(err) != driver.Unknown || errors.Is(err, driver.ErrClosed) {
			t.Fatalf("Leave without a connection: %v, %v; want an unknown outcome", ps, err)
		}
	}
	p.Heal()
	until(t, "the driver repeats the Leave", func() bool {
		q, err := others.Inspect(t.Context(), name)
		return err == nil && len(q.Tickets) == 1
	})
	leave(t, others, holder, driver.Held)
}
