//go:build unix

package sqlitelock

import (
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestF130_DeadWaitersCostLittle checks what it costs to come past 5,000 dead waiters
// (N33): a living one behind them is late by these requests. The cost is compared
// with that of their joins, both in time of the processor.
//
// Covers: F130 on sqlite.
func TestF130_DeadWaitersCostLittle(t *testing.T) {
	const dead, ttl = 5000, time.Minute
	file := filepath.Join(t.TempDir(), "locks.db")
	var now atomic.Int64 // on the machine's clock
	c := clock{
		boot: func() (time.Duration, error) { return time.Hour + time.Duration(now.Load()), nil },
		id:   func() (string, error) { return "here", nil },
		wall: time.Now,
	}
	a, b := openOnClock(t, file, c), openOnClock(t, file, c)
	join := func(d *Driver, i int) *driver.Ticket {
		k := &driver.Ticket{ID: "0123456789abcdef01234" + strconv.Itoa(100000+i), Name: "n", Units: 1, Limit: 1, TTL: ttl}
		if _, err := d.Join(t.Context(), k, true); err != nil {
			t.Fatal(err)
		}
		return k
	}
	begun := processorTime(t)
	for i := range dead {
		join(a, i)
	}
	joins := processorTime(t) - begun
	now.Add(int64(ttl / 2))
	k := join(b, dead)
	now.Add(int64(ttl/2 + ttl/20))
	begun = processorTime(t)
	for asks := 0; ; asks++ {
		ps, err := b.Renew(t.Context(), []driver.Ref{{Ticket: k, State: driver.Waiting}})
		if err != nil || ps[0].Err != nil || asks > dead/driver.MaxDrops {
			t.Fatalf("request %d: %+v, %v", asks+1, ps, err)
		}
		if ps[0].State == driver.Held {
			break
		}
	}
	drops := processorTime(t) - begun
	t.Logf("%d joins took %v, the requests past them %v", dead, joins, drops)
	if drops > joins/5 {
		t.Errorf("the requests past %d dead waiters took %v, their joins %v", dead, drops, joins)
	}
}

// openOnClock opens a file on a machine with that clock, for the rest of the test.
func openOnClock(t *testing.T, file string, c clock) *Driver {
	d, err := open(t.Context(), file, &Options{Sync: SyncNormal, noSweeps: true}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// processorTime returns the time of processors that this process has used.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
