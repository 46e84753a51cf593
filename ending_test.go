package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// losses collects the ends of holds that an Observer receives.
type losses struct {
	mu    sync.Mutex
	lost  []*holdfast.LostError
	ended int
}

func (l *losses) observer() holdfast.ClientOption {
	return holdfast.WithObserver(&holdfast.Observer{
		HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.ended++
			if lost, ok := errors.AsType[*holdfast.LostError](e.Err); ok {
				l.lost = append(l.lost, lost)
			}
		},
	})
}

// counts returns how many losses, and how many ends of holds, were reported.
func (l *losses) counts() (lost, ended int) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lost), l.ended
}

// TestF113_LossFoundByTheReleaseIsTold checks that a release that finds the
// lock gone reports that to its caller, to the caller of Do, and once to the
// Observer, for every kind of hold.
func TestF113_LossFoundByTheReleaseIsTold(t *testing.T) {
	type work = func(context.Context) error
	for name, do := range map[string]func(*holdfast.Client, work) error{
		"Do":           func(c *holdfast.Client, fn work) error { return c.Do(bg, "a", fn) },
		"RWMutex.Do":   func(c *holdfast.Client, fn work) error { return c.RWMutex("a").Do(bg, fn) },
		"RDo":          func(c *holdfast.Client, fn work) error { return c.RWMutex("a").RDo(bg, fn) },
		"Semaphore.Do": func(c *holdfast.Client, fn work) error { return c.Semaphore("a", 3).Do(bg, 2, fn) },
		"Multi.Do":     func(c *holdfast.Client, fn work) error { return c.Multi([]string{"a", "b"}).Do(bg, fn) },
		"nested": func(c *holdfast.Client, fn work) error {
			return c.Do(bg, "a", func(ctx context.Context) error { return c.Do(ctx, "a", fn) })
		},
		"the inner one last": func(c *holdfast.Client, fn work) error {
			outer, err := c.Mutex("a").Lock(bg)
			if err != nil {
				return err
			}
			return c.Do(outer.Context(), "a", func(ctx context.Context) error {
				if err := outer.Unlock(); err != nil {
					return err
				}
				return fn(ctx)
			})
		},
		"Unlock": func(c *holdfast.Client, fn work) error {
			h, err := c.Mutex("a").Lock(bg)
			if err != nil {
				return err
			}
			err = errors.Join(fn(h.Context()), h.Unlock())
			if !errors.Is(err, h.Err()) || h.Err() == nil {
				return errors.New("Err is not what Unlock said")
			}
			return errors.Join(err, h.Unlock())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				var told losses
				d := hook(s)
				d.push = func(string, driver.Status, func(string, driver.Status)) {}
				c, other := client(t, d, told.observer()), client(t, memlock.New(s))
				var token uint64
				oops := errors.New("oops")
				err := do(c, func(ctx context.Context) error {
					token = holdfast.Token(ctx, "a")
					s.LoseData()
					unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
					return errors.Join(ctx.Err(), oops)
				})
				wantErr(t, err, holdfast.ErrLost)
				wantErr(t, err, oops)
				lost, _ := errors.AsType[*holdfast.LostError](err)
				if lost.Name != "a" || lost.Reason != holdfast.LossGone || lost.Token != token || lost.Since.IsZero() {
					t.Errorf("%+v, token %d", lost, token)
				}
				want := 1
				if name == "Multi.Do" {
					want = 2
				}
				if n, ended := told.counts(); n != want || ended != want {
					t.Fatalf("%d losses and %d ends were told, want %d", n, ended, want)
				}
				if !errors.Is(err, error(told.lost[0])) {
					t.Errorf("%v was told, and %v returned", told.lost[0], err)
				}
			})
		})
	}
}

// TestF113_LossThatCrossesTheUnlock checks that a loss at any instant of an
// Unlock is reported once, and never if Unlock returns nil.
func TestF113_LossThatCrossesTheUnlock(t *testing.T) {
	for at := range 40 {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			var told losses
			c := client(t, memlock.New(s), told.observer())
			operator := memlock.New(s)
			h := must(t)(c.Mutex("a").Lock(bg))
			l, err := operator.Inspect(bg, "a")
			if err != nil {
				t.Fatal(err)
			}
			broken := make(chan error, 1)
			go func() {
				for range at {
					_ = h.Err() // some instructions later
				}
				broken <- operator.Break(bg, "a", l.Tickets[0].ID)
			}()
			err = h.Unlock()
			want := 0
			if err != nil {
				wantErr(t, err, holdfast.ErrLost)
				want = 1
			}
			if e := <-broken; (e == nil) != (err != nil) {
				t.Errorf("Break says %v, Unlock %v", e, err)
			}
			if n, ended := told.counts(); n != want || ended != 1 {
				t.Errorf("Unlock %v: %d losses, %d ends told", err, n, ended)
			}
		})
	}
}
