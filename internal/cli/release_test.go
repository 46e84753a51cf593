//go:build unix

package cli

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// mute is a store that answers nothing more once it is silent.
type mute struct {
	driver.Driver
	silent atomic.Bool
}

// Leave implements driver.Driver.
func (m *mute) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if m.silent.Load() {
		<-ctx.Done()
		return nil, driver.Wrap(driver.Unknown, ctx.Err())
	}
	return m.Driver.Leave(ctx, refs)
}

// TestF112_SilentStoreDelaysTheEndOnce: a run that has ended, or was ended by a
// signal, waits for a silent store for the bound of one release and not of two,
// and for a second at most after another signal.
func TestF112_SilentStoreDelaysTheEndOnce(t *testing.T) {
	for name, c := range map[string]struct {
		holds   bool          // else it was ended while it waited
		signal  time.Duration // when a signal comes, 0 for never
		atLeast time.Duration
		atMost  time.Duration
	}{
		"release":                {true, 0, 5 * time.Second, 5100 * time.Millisecond},
		"release, then a signal": {true, 2 * time.Second, 3 * time.Second, 3 * time.Second},
		"wait":                   {false, 0, 5 * time.Second, 5100 * time.Millisecond},
		"wait, then a signal":    {false, 100 * time.Millisecond, 1100 * time.Millisecond, 1100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.NewStore()
				m := &mute{Driver: memlock.New(store)}
				client, err := holdfast.New(m, holdfast.WithTTL(30*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				other, err := holdfast.New(memlock.New(store))
				if err != nil {
					t.Fatal(err)
				}
				signals := make(chan os.Signal, 1)
				r := &runner{app: new(app), client: client, signals: runSignals{c: signals}}
				var hold *holdfast.Hold
				if c.holds {
					hold = lock(t, client.Mutex("n"))
				} else {
					theirs := lock(t, other.Mutex("n"))
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					m.silent.Store(true)
					if _, err := client.Mutex("n").Lock(ctx); err == nil {
						t.Fatal("both hold")
					}
					defer theirs.Unlock()
				}
				m.silent.Store(true)
				before := time.Now()
				if c.signal > 0 {
					time.AfterFunc(c.signal, func() { signals <- syscall.SIGTERM })
				}
				if c.holds {
					if err := r.release(hold); err == nil {
						t.Error("the release is confirmed")
					}
				}
				r.close()
				if took := time.Since(before); took < c.atLeast || took > c.atMost {
					t.Errorf("it took %v, want %v to %v", took, c.atLeast, c.atMost)
				}
				r.closing.Wait()
				if err := other.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
