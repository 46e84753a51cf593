package holdfast_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// noon is a slot.
var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// slotOf returns the slot of an hour.
func slotOf(i int) time.Time { return noon.Add(time.Duration(i) * time.Hour) }

// counted returns a function that counts its calls, and returns err.
func counted(n *atomic.Int32, err error) func(context.Context) error {
	return func(context.Context) error {
		n.Add(1)
		return err
	}
}

// runOnce runs a slot that has to succeed.
func runOnce(t *testing.T, c *holdfast.Client, slot time.Time, fn func(context.Context) error) holdfast.Done {
	t.Helper()
	done, err := c.Once(bg, "job", slot, fn)
	if err != nil {
		t.Fatalf("Once: %v", err)
	}
	return done
}

// sameDone compares what two calls know of one slot.
func sameDone(t *testing.T, got, want holdfast.Done) {
	t.Helper()
	if !got.Slot.Equal(want.Slot) || got.By != want.By || !got.At.Equal(want.At) || got.Token != want.Token {
		t.Errorf("the slot is done as %+v, want %+v", got, want)
	}
}

// TestOnceRunsASlotOnOneMachine checks that of many machines that ask at the same
// time one runs the slot, that the others wait behind it and return nil without
// running it, and that all of them, and a late one, hear who did it and when.
func TestOnceRunsASlotOnOneMachine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var ran atomic.Int32
		var mu sync.Mutex
		var all []holdfast.Done
		var asked sync.WaitGroup
		start := time.Now()
		for range 50 {
			c := client(t, memlock.New(s))
			asked.Go(func() {
				done, err := c.Once(bg, "job", noon, func(ctx context.Context) error {
					ran.Add(1)
					if holdfast.Token(ctx, "job") == 0 {
						t.Error("the context has no token")
					}
					time.Sleep(time.Minute)
					return nil
				})
				if err != nil || time.Since(start) < time.Minute {
					t.Errorf("Once: %v after %v", err, time.Since(start))
				}
				mu.Lock()
				all = append(all, done)
				mu.Unlock()
			})
		}
		asked.Wait()
		time.Sleep(time.Hour)
		d := hook(s)
		late := runOnce(t, client(t, d), noon, counted(&ran, nil))
		if reads, sets, joins := d.sent(); reads != 1 || sets != 0 || joins != 0 {
			t.Errorf("a late machine sends %d reads, %d sets and %d joins, want one read", reads, sets, joins)
		}
		if n := ran.Load(); n != 1 {
			t.Errorf("the slot ran %d times", n)
		}
		here := 0
		for _, done := range all {
			if done.Here {
				here++
				if done.At.Sub(start) < time.Minute || done.By.PID == 0 || done.Token == 0 || done.Slot != noon {
					t.Errorf("%+v", done)
				}
			}
			sameDone(t, done, late)
		}
		if here != 1 || late.Here {
			t.Errorf("%d of 50 say Here, and the late one %v", here, late.Here)
		}
	})
}

// TestOnceOnBehalfOfAnother checks that the machines that did not run a slot, and
// LastDone, hear the holder of WithHolder, its Via too.
func TestOnceOnBehalfOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		for i, by := range []holdfast.Holder{{Host: "app", PID: 7, Via: "gate"}, {Via: "gate"}, {Host: "app"}, {}} {
			c := client(t, memlock.New(s), holdfast.WithHolder(by), holdfast.WithNote("n"))
			var ran atomic.Int32
			done := runOnce(t, c, slotOf(i), counted(&ran, nil))
			by.Since, by.Note = done.By.Since, "n"
			if done.By != by || by.Since.IsZero() {
				t.Errorf("the slot was done by %+v, want %+v", done.By, by)
			}
			other := client(t, memlock.New(s))
			sameDone(t, runOnce(t, other, slotOf(i), counted(&ran, nil)), done)
			last, err := other.LastDone(bg, "job")
			wantErr(t, err, nil)
			sameDone(t, last, done)
		}
	})
}

// TestOnceSlotsAreInstants checks that a slot is compared as an instant, whatever
// its zone, that another slot runs, also an older one, and that LastDone returns
// the one recorded last.
func TestOnceSlotsAreInstants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		if last, err := c.LastDone(bg, "job"); err != nil || last != (holdfast.Done{}) {
			t.Errorf("LastDone before the first: %+v, %v", last, err)
		}
		var ran atomic.Int32
		runOnce(t, c, noon, counted(&ran, nil))
		runOnce(t, c, noon.In(time.FixedZone("", 3600)), counted(&ran, nil))
		if n := ran.Load(); n != 1 {
			t.Errorf("an instant in two zones ran %d times", n)
		}
		runOnce(t, c, slotOf(1), counted(&ran, nil))
		done := runOnce(t, c, slotOf(-1), counted(&ran, nil))
		if n := ran.Load(); n != 3 || !done.Here {
			t.Errorf("three slots ran %d times", n)
		}
		last, err := c.LastDone(bg, "job")
		if err != nil || last.Here {
			t.Errorf("LastDone: %+v, %v", last, err)
		}
		sameDone(t, last, done)
	})
}

// TestOnceCostsThreeRequestsMoreThanALock checks the requests of a slot that
// runs.
func TestOnceCostsThreeRequestsMoreThanALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		var ran atomic.Int32
		runOnce(t, client(t, d), noon, counted(&ran, nil))
		if reads, sets, joins := d.sent(); reads != 2 || sets != 1 || joins != 1 {
			t.Errorf("%d reads, %d sets, %d joins", reads, sets, joins)
		}
	})
}

// TestOnceErrorOfTheFunction checks that an error of the function is returned and
// the slot done all the same, and that ErrNotDone leaves it open.
func TestOnceErrorOfTheFunction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		var ran atomic.Int32
		later := &holdfast.WaitError{Cause: holdfast.ErrNotDone} // wraps it
		for range 3 {
			done, err := c.Once(bg, "job", noon, counted(&ran, later))
			if err != later || !done.Here {
				t.Errorf("with ErrNotDone: %+v, %v", done, err)
			}
		}
		if n := ran.Load(); n != 3 {
			t.Errorf("an open slot ran %d times, want 3", n)
		}
		if last, err := c.LastDone(bg, "job"); err != nil || last != (holdfast.Done{}) {
			t.Errorf("LastDone of an open slot: %+v, %v", last, err)
		}
		half := errors.New("half an invoice run")
		done, err := c.Once(bg, "job", noon, counted(&ran, half))
		if err != half || !done.Here {
			t.Errorf("with an error: %+v, %v", done, err)
		}
		again := runOnce(t, c, noon, counted(&ran, nil))
		if n := ran.Load(); n != 4 || again.Here {
			t.Errorf("after the error the slot ran %d times more", n-4)
		}
		sameDone(t, again, done)
	})
}

// TestOncePanicLeavesTheSlotOpen checks that a panic, or the end of the goroutine,
// frees the lock and leaves the slot open.
func TestOncePanicLeavesTheSlotOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c := client(t, memlock.New(s))
		func() {
			defer func() {
				if recover() != "a bug" {
					t.Error("the panic is lost")
				}
			}()
			_, _ = c.Once(bg, "job", noon, func(context.Context) error { panic("a bug") })
		}()
		var ran atomic.Int32
		if done := runOnce(t, client(t, memlock.New(s)), noon, counted(&ran, nil)); !done.Here || ran.Load() != 1 {
			t.Errorf("after a panic: %+v", done)
		}
	})
}

// TestOnceDeadMachineIsFollowed checks that the next in line runs the slot of a
// machine that cannot be reached, at most a TTL and 5 % later, that the first
// one's context has ended before, and that its slot is not recorded.
func TestOnceDeadMachineIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		a, b := client(t, d), client(t, memlock.New(s))
		started := make(chan struct{})
		var ended atomic.Int64
		first := make(chan error, 1)
		go func() {
			_, err := a.Once(bg, "job", noon, func(ctx context.Context) error {
				close(started)
				<-ctx.Done()
				ended.Store(time.Now().UnixNano())
				return nil // as if all were well
			})
			first <- err
		}()
		<-started
		time.Sleep(time.Second)
		d.cut()
		cut := time.Now()
		done := runOnce(t, b, noon, func(context.Context) error {
			if took := time.Since(cut); took > holdfast.DefaultTTL*105/100 {
				t.Errorf("the next in line began after %v", took)
			}
			if at := ended.Load(); at == 0 || at >= time.Now().UnixNano() {
				t.Error("the first one's context has not ended")
			}
			return nil
		})
		if err := <-first; !done.Here || !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("%+v; the first has %v, want ErrLost", done, err)
		}
		last, err := b.LastDone(bg, "job")
		wantErr(t, err, nil)
		sameDone(t, last, done)
	})
}

// TestOncePausedHolderCannotRecord checks that a machine that was paused past its
// lease, and whose clock does not show it, cannot replace a later mark.
func TestOncePausedHolderCannotRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		a, b := client(t, d), client(t, memlock.New(s))
		d.setMark = func(ctx context.Context, next func() error) error {
			// The request is on its way when the lock is broken, and another machine
			// runs the slot.
			breakHolder(t, b, "job")
			var ran atomic.Int32
			if done := runOnce(t, b, noon, counted(&ran, nil)); !done.Here {
				t.Error("the second machine did not run the slot")
			}
			err := next()
			if !errors.Is(err, driver.ErrStaleMark) {
				t.Errorf("the late mark: %v", err)
			}
			return err
		}
		var ran atomic.Int32
		done, err := a.Once(bg, "job", noon, counted(&ran, nil))
		if !done.Here || !errors.Is(err, holdfast.ErrLost) || !errors.Is(err, holdfast.ErrNotDone) {
			t.Errorf("%+v, %v; want ErrLost and ErrNotDone", done, err)
		}
		last, err := b.LastDone(bg, "job")
		if err != nil || last.Token <= done.Token {
			t.Errorf("the mark has token %d, the late one has %d; %v", last.Token, done.Token, err)
		}
	})
}

// TestOnceRepeatsTheMark checks that a mark whose answer is lost is set again, as
// long as the hold lasts, and that a caller's context which ended while the
// function ran does not keep the slot from being recorded.
func TestOnceRepeatsTheMark(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		var tries atomic.Int32
		d.setMark = func(ctx context.Context, next func() error) error {
			switch tries.Add(1) {
			case 1:
				_ = next()
				return errors.New("the answer is lost")
			case 2:
				<-ctx.Done()
				return ctx.Err()
			case 3:
				return driver.Errorf(driver.Unavailable, "no leader")
			}
			return next()
		}
		c := client(t, d)
		ctx, cancel := context.WithCancel(bg)
		done, err := c.Once(ctx, "job", noon, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		if err != nil || !done.Here || tries.Load() != 4 {
			t.Errorf("%+v, %v after %d attempts", done, err, tries.Load())
		}
		last, err := c.LastDone(bg, "job")
		wantErr(t, err, nil)
		sameDone(t, last, done)
	})
}

// TestOnceSaysWhyASlotIsNotRecorded checks that the error of a slot that ran and
// could not be recorded joins the function's own with a StoreError, and with a
// LostError if the hold ended before the answer.
func TestOnceSaysWhyASlotIsNotRecorded(t *testing.T) {
	for name, x := range map[string]struct {
		answer func(ctx context.Context) error
		lost   bool
	}{
		"refused": {func(context.Context) error { return driver.Errorf(driver.Refused, "no rights") }, false},
		"silent":  {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				d := hook(s)
				c := client(t, d)
				d.setMark = func(ctx context.Context, next func() error) error {
					if x.lost {
						d.cut()
					}
					return x.answer(ctx)
				}
				own := errors.New("the function's")
				var ran atomic.Int32
				done, err := c.Once(bg, "job", noon, counted(&ran, own))
				_, store := errors.AsType[*holdfast.StoreError](err)
				if !done.Here || !errors.Is(err, own) || !store || !errors.Is(err, holdfast.ErrNotDone) || errors.Is(err, holdfast.ErrLost) != x.lost {
					t.Errorf("%+v, %v", done, err)
				}
				if last, err := client(t, memlock.New(s)).LastDone(bg, "job"); err != nil || last != (holdfast.Done{}) {
					t.Errorf("LastDone: %+v, %v", last, err)
				}
			})
		})
	}
}

// TestOnceTellsWhetherTheSlotIsRecorded checks that the error of a call whose function ran
// matches ErrNotDone where the slot is not known to be recorded while the lock was held,
// beside the reason, and only there: a loss that the release finds is a *LostError
// without it, and the slot is done.
func TestOnceTellsWhetherTheSlotIsRecorded(t *testing.T) {
	own := errors.New("the function's")
	type world struct {
		*testing.T
		c, other *holdfast.Client
		h        *hooked
	}
	for name, x := range map[string]struct {
		opts    []holdfast.Option
		setMark func(w world, ctx context.Context, next func() error) error // nil passes it on
		fn      func(w world, ctx context.Context) error
		done    bool    // LastDone has the slot
		notDone bool    // the error matches ErrNotDone
		is      []error // the errors that it matches besides
	}{
		"recorded":                {fn: func(w world, ctx context.Context) error { return nil }, done: true},
		"recorded, with an error": {fn: func(w world, ctx context.Context) error { return own }, done: true, is: []error{own}},
		"left open":               {fn: func(w world, ctx context.Context) error { return errors.Join(own, holdfast.ErrNotDone) }, notDone: true, is: []error{own}},
		"broken by the function": {
			fn:   func(w world, ctx context.Context) error { breakHolder(w.T, w.c, "job"); return nil },
			done: true, is: []error{holdfast.ErrLost},
		},
		"broken, with an error": {
			fn:   func(w world, ctx context.Context) error { breakHolder(w.T, w.c, "job"); return own },
			done: true, is: []error{holdfast.ErrLost, own},
		},
		"broken, and left open": {
			fn:      func(w world, ctx context.Context) error { breakHolder(w.T, w.c, "job"); return holdfast.ErrNotDone },
			notDone: true, is: []error{holdfast.ErrLost},
		},
		"broken, and noticed by the function": {
			fn:      func(w world, ctx context.Context) error { breakHolder(w.T, w.c, "job"); <-ctx.Done(); return nil },
			notDone: true, is: []error{holdfast.ErrLost},
		},
		"held for too long": {
			opts:    []holdfast.Option{holdfast.WithMaxHold(time.Second)},
			fn:      func(w world, ctx context.Context) error { <-ctx.Done(); return own },
			notDone: true, is: []error{holdfast.ErrLost, own},
		},
		"refused": {
			setMark: func(w world, ctx context.Context, next func() error) error {
				return driver.Errorf(driver.Refused, "no rights")
			},
			fn:      func(w world, ctx context.Context) error { return own },
			notDone: true, is: []error{own},
		},
		"recorded after the hold": {
			opts: []holdfast.Option{holdfast.WithMaxHold(time.Second)},
			setMark: func(w world, ctx context.Context, next func() error) error {
				time.Sleep(2 * time.Second)
				return next()
			},
			fn:   func(w world, ctx context.Context) error { return nil },
			done: true, notDone: true, is: []error{holdfast.ErrLost},
		},
		"closed": {
			fn: func(w world, ctx context.Context) error {
				go w.c.Close()
				<-ctx.Done()
				time.Sleep(time.Hour)
				return nil
			},
			notDone: true, is: []error{holdfast.ErrClosed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				w := world{T: t, h: hook(s), other: client(t, memlock.New(s))}
				w.c = client(t, w.h)
				w.h.push = func(string, driver.Status, func(string, driver.Status)) {} // a loss is noticed by requests alone
				if x.setMark != nil {
					w.h.setMark = func(ctx context.Context, next func() error) error { return x.setMark(w, ctx, next) }
				}
				done, err := w.c.Once(bg, "job", noon, func(ctx context.Context) error { return x.fn(w, ctx) }, x.opts...)
				last, lastErr := w.other.LastDone(bg, "job")
				if lastErr != nil || last.Slot.Equal(noon) != x.done {
					t.Errorf("LastDone: %+v, %v; want the slot there: %v", last, lastErr, x.done)
				}
				if !done.Here || errors.Is(err, holdfast.ErrNotDone) != x.notDone {
					t.Errorf("%+v, %v; want ErrNotDone: %v", done, err, x.notDone)
				}
				for _, want := range []error{own, holdfast.ErrLost, holdfast.ErrClosed} {
					if errors.Is(err, want) != slices.Contains(x.is, want) {
						t.Errorf("%v; want %v", err, x.is)
					}
				}
				if !x.notDone && len(x.is) == 0 && err != nil {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestOnceWaitsForAStoreThatIsSlow checks that reads of the mark that fail are
// left to Lock, repeated under the hold, and that a read that is refused is an
// error before the function runs.
func TestOnceWaitsForAStoreThatIsSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		var reads atomic.Int32
		d.mark = func(ctx context.Context, next func() (driver.Mark, error)) (driver.Mark, error) {
			switch reads.Add(1) {
			case 1, 3:
				<-ctx.Done()
				return driver.Mark{}, ctx.Err()
			case 2:
				return driver.Mark{}, driver.Errorf(driver.Unavailable, "no leader")
			}
			return next()
		}
		c := client(t, d)
		var ran atomic.Int32
		if done := runOnce(t, c, noon, counted(&ran, nil)); !done.Here || reads.Load() != 4 {
			t.Errorf("%+v after %d reads", done, reads.Load())
		}
		d.mark = func(context.Context, func() (driver.Mark, error)) (driver.Mark, error) {
			return driver.Mark{}, driver.Errorf(driver.Refused, "no rights")
		}
		_, err := c.Once(bg, "job", slotOf(1), counted(&ran, nil))
		if e, ok := errors.AsType[*holdfast.StoreError](err); !ok || !e.Refused() || ran.Load() != 1 {
			t.Errorf("a refused read: %v, and the function ran %d times", err, ran.Load())
		}
		if _, err := c.LastDone(bg, "job"); err == nil || !strings.Contains(err.Error(), "no rights") {
			t.Errorf("LastDone: %v", err)
		}
	})
}

// TestOnceTakesAnotherHoldAfterALossBeforeTheFunction checks that a hold that is
// lost before the function begins is followed by another one.
func TestOnceTakesAnotherHoldAfterALossBeforeTheFunction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, operator := client(t, d), client(t, memlock.New(s))
		var reads atomic.Int32
		d.mark = func(ctx context.Context, next func() (driver.Mark, error)) (driver.Mark, error) {
			if reads.Add(1) == 2 {
				breakHolder(t, operator, "job")
				synctest.Wait()
				return driver.Mark{}, errors.New("the answer is lost")
			}
			return next()
		}
		var ran atomic.Int32
		if done := runOnce(t, c, noon, counted(&ran, nil)); !done.Here || ran.Load() != 1 {
			t.Errorf("%+v", done)
		}
		if _, _, joins := d.sent(); joins != 2 {
			t.Errorf("%d joins, want 2", joins)
		}
	})
}

// TestTryOnceDoesNotWait checks that TryOnce returns a HeldError while another
// runs the job, nil when the slot is done, and runs a slot that is open.
func TestTryOnceDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
		var ran atomic.Int32
		done, err := a.TryOnce(bg, "job", noon, func(context.Context) error {
			start := time.Now()
			_, err := b.TryOnce(bg, "job", noon, counted(&ran, nil))
			held, ok := errors.AsType[*holdfast.HeldError](err)
			if !ok || held.Holder.PID == 0 || time.Since(start) > 0 {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			return nil
		})
		if err != nil || !done.Here {
			t.Errorf("%+v, %v", done, err)
		}
		late, err := b.TryOnce(bg, "job", noon, counted(&ran, nil))
		if err != nil || late.Here || ran.Load() != 0 {
			t.Errorf("%+v, %v", late, err)
		}
		sameDone(t, late, done)
	})
}

// TestOnceMaxWaitBoundsTheWait checks that WithMaxWait bounds the wait behind a
// machine that runs the job, and not the function.
func TestOnceMaxWaitBoundsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s), holdfast.WithMaxWait(2*time.Second))
		hold := must(t)(a.Mutex("job").Lock(bg))
		var ran atomic.Int32
		start := time.Now()
		_, err := b.Once(bg, "job", noon, counted(&ran, nil))
		wantErr(t, err, holdfast.ErrMaxWait)
		wantErr(t, err, holdfast.ErrHeld)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("after %v", took)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err = b.Once(ctx, "job", noon, counted(&ran, nil))
		wantErr(t, err, context.DeadlineExceeded)
		unlock(t, hold)
		if done := runOnce(t, b, noon, func(context.Context) error { time.Sleep(time.Minute); return nil }); !done.Here {
			t.Errorf("%+v", done)
		}
		_, err = b.Once(ctx, "job", noon, counted(&ran, nil))
		if wantErr(t, err, context.DeadlineExceeded); ran.Load() != 0 {
			t.Errorf("the function ran %d times", ran.Load())
		}
	})
}

// TestOnceDuringShutdown checks that Shutdown and Close ask the function to stop,
// that its slot is recorded, that waits and new calls end with ErrClosed, and that
// LastDone works until Close.
func TestOnceDuringShutdown(t *testing.T) {
	for name, end := range map[string]func(c *holdfast.Client) error{
		"Shutdown": func(c *holdfast.Client) error { return c.Shutdown(bg) },
		"Close":    (*holdfast.Client).Close,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
				type result struct {
					done holdfast.Done
					err  error
				}
				first, behind := make(chan result, 1), make(chan result, 1)
				var ran atomic.Int32
				go func() {
					done, err := c.Once(bg, "job", noon, func(ctx context.Context) error {
						<-ctx.Done()
						if cause := context.Cause(ctx); cause != holdfast.ErrShutdown {
							t.Errorf("the cause is %v", cause)
						}
						if _, err := c.LastDone(bg, "job"); (err == nil) != (name == "Shutdown") {
							t.Errorf("LastDone: %v", err)
						}
						time.Sleep(time.Second)
						return nil
					})
					first <- result{done, err}
				}()
				synctest.Wait()
				go func() {
					done, err := c.Once(bg, "job", noon, counted(&ran, nil))
					behind <- result{done, err}
				}()
				synctest.Wait()
				ended := make(chan error, 1)
				go func() { ended <- end(c) }()
				synctest.Wait()
				if r := <-behind; !errors.Is(r.err, holdfast.ErrClosed) {
					t.Errorf("a wait: %v", r.err)
				}
				_, err := c.Once(bg, "job", slotOf(1), counted(&ran, nil))
				wantErr(t, err, holdfast.ErrClosed)
				_, err = c.TryOnce(bg, "job", slotOf(1), counted(&ran, nil))
				wantErr(t, err, holdfast.ErrClosed)
				r := <-first
				if r.err != nil || !r.done.Here {
					t.Errorf("%+v, %v", r.done, r.err)
				}
				wantErr(t, <-ended, nil)
				late := runOnce(t, other, noon, counted(&ran, nil))
				sameDone(t, late, r.done)
				if ran.Load() != 0 {
					t.Errorf("the slot ran %d times more", ran.Load())
				}
				_, err = c.LastDone(bg, "job")
				wantErr(t, err, holdfast.ErrClosed)
			})
		})
	}
}

// TestOnceOutlivesTheBoundOfClose checks that a function which ignores its context
// for longer than Close waits has ErrClosed, and that its slot stays open.
func TestOnceOutlivesTheBoundOfClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		first := make(chan error, 1)
		go func() {
			_, err := c.Once(bg, "job", noon, func(context.Context) error { time.Sleep(time.Hour); return nil })
			first <- err
		}()
		synctest.Wait()
		if _, ok := errors.AsType[*holdfast.ShutdownError](c.Close()); !ok {
			t.Error("Close does not name the job")
		}
		var ran atomic.Int32
		if done := runOnce(t, other, noon, counted(&ran, nil)); !done.Here {
			t.Errorf("%+v", done)
		}
		wantErr(t, <-first, holdfast.ErrClosed)
	})
}

// TestOnceInsideOnce checks that a slot may run inside another of the same job,
// and that both are recorded.
func TestOnceInsideOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		var ran atomic.Int32
		runOnce(t, c, noon, func(ctx context.Context) error {
			done, err := c.Once(ctx, "job", slotOf(1), counted(&ran, nil))
			if err != nil || !done.Here || done.Token != holdfast.Token(ctx, "job") {
				t.Errorf("inside: %+v, %v", done, err)
			}
			return err
		})
		for _, slot := range []time.Time{noon, slotOf(1)} {
			if done := runOnce(t, c, slot, counted(&ran, nil)); done.Here {
				t.Errorf("slot %v ran again", slot)
			}
		}
	})
}

// TestOnceInsideItsOwnSlot checks that a Once for the slot that a function runs for is
// an error at once with the function's context, however deep, and that the slot is done
// once.
func TestOnceInsideItsOwnSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		var ran atomic.Int32
		done := runOnce(t, c, noon, func(ctx context.Context) error {
			ran.Add(1)
			refused := func(ctx context.Context) error {
				for _, once := range []onceFunc{c.Once, c.TryOnce} {
					if done, err := once(ctx, "job", noon.In(time.FixedZone("", 3600)), counted(&ran, nil)); err == nil || !strings.Contains(err.Error(), "inside of the function that runs for it") {
						t.Errorf("%+v, %v", done, err)
					}
				}
				return nil
			}
			if err := c.Do(ctx, "job", refused); err != nil {
				t.Error(err)
			}
			if done, err := c.Once(ctx, "job", slotOf(1), refused); err != nil || !done.Here {
				t.Errorf("another slot: %+v, %v", done, err)
			}
			if done, err := c.Once(ctx, "another job", noon, refused); err != nil || !done.Here {
				t.Errorf("another job: %+v, %v", done, err)
			}
			return refused(ctx)
		})
		if !done.Here || ran.Load() != 1 {
			t.Errorf("%+v, ran %d times", done, ran.Load())
		}
	})
}

// TestOnceInsideAnOwnersHold checks that Once is an error inside of a hold of its name
// with a named owner, which another machine may have too: both would run the slot.
func TestOnceInsideAnOwnersHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var ran atomic.Int32
		for range 2 {
			c := client(t, memlock.New(s))
			h := must(t)(c.Mutex("job", holdfast.WithOwner("night")).Lock(bg))
			defer h.Unlock()
			refused := func(ctx context.Context) error {
				for _, once := range []onceFunc{c.Once, c.TryOnce} {
					if _, err := once(ctx, "job", noon, counted(&ran, nil)); err == nil || !strings.Contains(err.Error(), `inside of a hold of owner "night"`) {
						t.Errorf("error %v", err)
					}
				}
				return nil
			}
			_ = refused(h.Context())
			if err := c.Do(h.Context(), "job", refused); err != nil {
				t.Error(err)
			}
			if _, err := c.Once(h.Context(), "another job", noon, counted(&ran, nil)); err != nil {
				t.Error(err)
			}
		}
		if ran.Load() != 1 {
			t.Errorf("the other job ran %d times", ran.Load())
		}
	})
}

// onceFunc is Once or TryOnce.
type onceFunc func(context.Context, string, time.Time, func(context.Context) error, ...holdfast.Option) (holdfast.Done, error)

// TestOnceOldSlotsCountAsDone checks that a slot older than the 64 kept counts as
// done, that the Observer is told by whom the greatest was done, and that the 64
// themselves are told apart.
func TestOnceOldSlotsCountAsDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		ahead := client(t, memlock.New(s), holdfast.WithNote("a clock that is ahead"))
		var reports []holdfast.BackgroundErrorInfo
		var mu sync.Mutex
		c := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) {
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, e)
		}}))
		var ran atomic.Int32
		for i := range 64 {
			runOnce(t, ahead, slotOf(1+2*i), counted(&ran, nil))
		}
		for i := range 64 {
			if done := runOnce(t, c, slotOf(1+2*i), counted(&ran, nil)); done.Here || done.Slot != slotOf(1+2*i) || done.TooOld {
				t.Errorf("slot %d: %+v", i, done)
			}
		}
		if len(reports) > 0 || ran.Load() != 64 {
			t.Fatalf("%d runs, reports %v", ran.Load(), reports)
		}
		if done := runOnce(t, c, slotOf(0), counted(&ran, nil)); done.Here || done.Slot != slotOf(0) || done.By != (holdfast.Holder{}) || !done.TooOld {
			t.Errorf("an old slot: %+v", done)
		}
		synctest.Wait()
		mu.Lock()
		if len(reports) != 1 || reports[0].Op != "once" || reports[0].Name != "job" || !strings.Contains(reports[0].Err.Error(), "a clock that is ahead") {
			t.Errorf("reports %v", reports)
		}
		mu.Unlock()
		if done := runOnce(t, c, slotOf(2), counted(&ran, nil)); !done.Here {
			t.Errorf("an open slot among the 64: %+v", done)
		}
		if done, err := c.Once(bg, "other", slotOf(0), counted(&ran, nil)); err != nil || !done.Here {
			t.Errorf("another name: %+v, %v", done, err)
		}
	})
}

// TestOncePrefixAndLock checks that names of Once have the client's prefix, and
// that Once takes the mutex of the name.
func TestOncePrefixAndLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s), holdfast.WithPrefix("billing/")), client(t, memlock.New(s))
		var ran atomic.Int32
		done := runOnce(t, a, noon, func(context.Context) error {
			if n := tickets(t, b, "billing/job"); n != 1 {
				t.Errorf("%d tickets", n)
			}
			return nil
		})
		last, err := b.LastDone(bg, "billing/job")
		wantErr(t, err, nil)
		sameDone(t, last, done)
		if done := runOnce(t, b, noon, counted(&ran, nil)); !done.Here {
			t.Error("a name without the prefix is the same job")
		}
		hold := must(t)(b.RWMutex("rw").RLock(bg))
		defer hold.Unlock()
		_, err = b.Once(bg, "rw", noon, counted(&ran, nil))
		wantErr(t, err, holdfast.ErrKindMismatch)
	})
}

// TestOnceObserverSeesTheLock checks that the Observer sees the lock of a slot
// that runs, and nothing of one that is done.
func TestOnceObserverSeesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var starts, holds atomic.Int32
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(&holdfast.Observer{
			LockStart: func(ctx context.Context, e holdfast.LockStartInfo) context.Context {
				starts.Add(1)
				return context.WithValue(ctx, tKey{}, "traced")
			},
			HoldDone: func(context.Context, holdfast.HoldDoneInfo) { holds.Add(1) },
		}))
		for range 2 {
			runOnce(t, c, noon, func(ctx context.Context) error {
				if ctx.Value(tKey{}) != "traced" {
					t.Error("the function's context lacks the Observer's value")
				}
				return nil
			})
		}
		if starts.Load() != 1 || holds.Load() != 1 {
			t.Errorf("%d starts, %d holds", starts.Load(), holds.Load())
		}
	})
}

type tKey struct{}

// TestOnceRefusesBadCalls checks that each bad call is one plain error, and that
// no function runs.
func TestOnceRefusesBadCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		without := client(t, withoutMarks{memlock.New(memlock.NewStore())})
		var nobody *holdfast.Client
		var none context.Context
		fn := func(context.Context) error { t.Error("the function runs"); return nil }
		for want, call := range map[string]func() error{
			"that New did not make":       func() error { _, err := nobody.Once(bg, "job", noon, fn); return err },
			"context is nil":              func() error { _, err := c.Once(none, "job", noon, fn); return err },
			"function is nil":             func() error { _, err := c.Once(bg, "job", noon, nil); return err },
			"function is nil ":            func() error { _, err := c.TryOnce(bg, "job", noon, nil); return err },
			"name is empty":               func() error { _, err := c.Once(bg, "", noon, fn); return err },
			"option 1 of 1 is nil":        func() error { _, err := c.Once(bg, "job", noon, fn, nil); return err },
			"zero time":                   func() error { _, err := c.Once(bg, "job", time.Time{}, fn); return err },
			"outside of the years":        func() error { _, err := c.Once(bg, "job", noon.AddDate(300, 0, 0), fn); return err },
			"hold together":               func() error { _, err := c.Once(bg, "job", noon, fn, holdfast.WithOwner("o")); return err },
			"not supported by this store": func() error { _, err := without.Once(bg, "job", noon, fn); return err },
			"New did not make":            func() error { _, err := nobody.LastDone(bg, "job"); return err },
			"context is nil ":             func() error { _, err := c.LastDone(none, "job"); return err },
			"name is empty ":              func() error { _, err := c.LastDone(bg, ""); return err },
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		_, err := without.LastDone(bg, "job")
		wantErr(t, err, holdfast.ErrUnsupported)
	})
}

// withoutMarks is a store that keeps none, whatever its Traits say.
type withoutMarks struct{ driver.Driver }
