package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestPing checks the answers of Ping: of a store that answers, that fails, and
// that is silent, and of a client that closes.
func TestPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		hooks := hook(s)
		c := client(t, hooks, holdfast.WithPrefix("p/"))
		other := client(t, memlock.New(s))
		if err := c.Ping(bg); err != nil {
			t.Error(err)
		}
		for name, err := range other.Names(bg, "") {
			t.Errorf("Ping left %q at the store, %v", name, err)
		}
		if hooks.joins+hooks.renews+hooks.leaves != 0 {
			t.Errorf("Ping sent %d joins, %d renewals and %d leaves", hooks.joins, hooks.renews, hooks.leaves)
		}
		for class, is := range map[driver.Class]func(*holdfast.StoreError) bool{
			driver.Unavailable: (*holdfast.StoreError).Unavailable,
			driver.Unknown:     (*holdfast.StoreError).Unknown,
			driver.Refused:     (*holdfast.StoreError).Refused,
		} {
			hooks.set(func(d *hooked) {
				d.look = func(context.Context, lookFunc) (driver.Queue, error) {
					return driver.Queue{}, driver.Errorf(class, "no")
				}
			})
			err := c.Ping(bg)
			failed, ok := errors.AsType[*holdfast.StoreError](err)
			if !ok || failed.Op != "ping" || !is(failed) {
				t.Errorf("%v: %v", class, err)
			}
			if ok && failed.Refused() != (class == driver.Refused) {
				t.Errorf("%v: Refused is %v", class, failed.Refused())
			}
		}
		hooks.cut()
		for _, x := range []struct{ ctx, want time.Duration }{{time.Hour, 5 * time.Second}, {time.Second, time.Second}} {
			ctx, cancel := context.WithTimeout(bg, x.ctx)
			begun := time.Now()
			err := c.Ping(ctx)
			cancel()
			if _, ok := errors.AsType[*holdfast.StoreError](err); !ok || time.Since(begun) != x.want {
				t.Errorf("of a silent store after %v: %v; want a StoreError after %v", time.Since(begun), err, x.want)
			}
		}
		hooks.heal()
		if err := c.Ping(bg); err != nil {
			t.Error(err)
		}
	})
}

// TestPingOfAClientThatCloses checks that Ping matches ErrClosed from Shutdown
// on, while the store still answers, and that Close ends a Ping in flight.
func TestPingOfAClientThatCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		hooks := hook(s)
		c := client(t, hooks)
		h := must(t)(c.Mutex("a").Lock(bg))
		stopped := make(chan error)
		go func() { stopped <- c.Shutdown(bg) }()
		synctest.Wait()
		wantErr(t, c.Ping(bg), holdfast.ErrClosed)
		if _, err := c.Inspect(bg, "a"); err != nil {
			t.Errorf("Inspect during Shutdown: %v", err)
		}
		unlock(t, h)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		wantErr(t, c.Ping(bg), holdfast.ErrClosed)

		c = client(t, hooks)
		hooks.cut()
		begun := time.Now()
		pinged := make(chan error)
		go func() { pinged <- c.Ping(bg) }()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wantErr(t, <-pinged, holdfast.ErrClosed)
		if took := time.Since(begun); took != 0 {
			t.Errorf("Close and Ping took %v", took)
		}
		hooks.heal()
	})
}

// TestStats counts holds and waits of each kind.
func TestStats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		want := func(held, waiting int) {
			t.Helper()
			synctest.Wait()
			if got := c.Stats(); got != (holdfast.Stats{Held: held, Waiting: waiting}) {
				t.Errorf("%+v, want %d held, %d waiting", got, held, waiting)
			}
		}
		want(0, 0)
		h := must(t)(c.Mutex("a").Lock(bg))
		want(1, 0)
		nested := must(t)(c.Mutex("a").Lock(h.Context()))
		want(1, 0)
		readers := []*holdfast.Hold{must(t)(c.RWMutex("r").RLock(bg)), must(t)(c.RWMutex("r").RLock(bg))}
		want(3, 0)
		permits := must(t)(c.Semaphore("s", 5).Acquire(bg, 4))
		foreign := must(t)(other.Mutex("b").Lock(bg))
		want(4, 0)
		ctx, cancel := context.WithCancel(bg)
		for _, lock := range []func(context.Context) (*holdfast.Hold, error){
			c.Mutex("a").Lock, c.Mutex("b").Lock, c.Mutex("b").Lock, c.RWMutex("r").Lock,
		} {
			go func() { _, _ = lock(ctx) }()
		}
		want(4, 4)
		if _, err := c.Mutex("b").TryLock(bg); err == nil {
			t.Error("TryLock overtook")
		}
		d.cut()
		tried := make(chan error, 1)
		go func() { _, err := c.Mutex("tried").TryLock(ctx); tried <- err }()
		want(4, 4) // the Try is under way, and waits for no turn
		d.heal()
		cancel()
		if err := <-tried; err == nil {
			t.Error("TryLock of a silent store succeeded")
		}
		want(4, 0)
		unlock(t, nested)
		unlock(t, permits)
		unlock(t, readers[0])
		want(2, 0)
		if err := other.Break(bg, "a", mustInspect(t, other, "a").Holders[0].ID); err != nil {
			t.Error(err)
		}
		want(1, 0)
		_ = h.Unlock()
		unlock(t, readers[1])
		want(0, 0)
		unlock(t, foreign)
		h = must(t)(c.Mutex("a").Lock(bg))
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		want(0, 0)
		_ = h.Unlock()
	})
}

func mustInspect(t *testing.T, c *holdfast.Client, name string) holdfast.LockInfo {
	t.Helper()
	l, err := c.Inspect(bg, name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestHolderLogValue checks the group of a Holder in a log: the fields that are
// known, and none for the zero Holder.
func TestHolderLogValue(t *testing.T) {
	for want, h := range map[string]holdfast.Holder{
		"by.host=h by.pid=7 by.owner=o by.note=\"a note\" by.since=2026-01-02T03:04:05.000Z": {
			Host: "h", PID: 7, Owner: "o", Note: "a note", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		"by.host=h by.pid=7":                {Host: "h", PID: 7},
		`by.host="h\nlevel=ERROR" by.pid=7`: {Host: "h\nlevel=ERROR", PID: 7},
		"":                                  {},
	} {
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "by", h)
		_, got, _ := strings.Cut(strings.TrimSpace(b.String()), " msg=m")
		if got = strings.TrimSpace(got); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
