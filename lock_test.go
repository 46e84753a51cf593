package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

var bg = context.Background()

// noContext is the nil context.
var noContext context.Context

func TestLockUnlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		m := c.Mutex("a")
		var last uint64
		for range 3 {
			h := must(t)(m.Lock(bg))
			if h.Err() != nil || h.Context().Err() != nil {
				t.Fatalf("held: Err %v, context %v", h.Err(), h.Context().Err())
			}
			if h.Token() <= last {
				t.Fatalf("token %d after %d", h.Token(), last)
			}
			if got := holdfast.Token(h.Context(), "a"); got != h.Token() {
				t.Fatalf("Token(ctx) = %d, want %d", got, h.Token())
			}
			last = h.Token()
			unlock(t, h)
			wantErr(t, h.Err(), holdfast.ErrReleased)
			wantErr(t, context.Cause(h.Context()), holdfast.ErrReleased)
		}
		if got := holdfast.Token(bg, "a"); got != 0 {
			t.Fatalf("Token of a bare context is %d", got)
		}
	})
}

// TestF57_UnlockIsIdempotent covers F57. It calls Unlock twice, and from
// several goroutines at once.
func TestF57_UnlockIsIdempotent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { unlock(t, h) })
		}
		wg.Wait()
		stranger := must(t)(other.Mutex("a").Lock(bg))
		unlock(t, h)
		if d.leaves != 1 {
			t.Fatalf("%d Leaves for one hold", d.leaves)
		}
		if err := stranger.Err(); err != nil {
			t.Fatalf("a late Unlock ended a stranger's hold: %v", err)
		}
		unlock(t, stranger)
	})
}

func TestTryLockSaysWhoHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a := client(t, memlock.New(s), holdfast.WithNote("nightly"))
		b := client(t, memlock.New(s))
		asked := time.Now()
		h := must(t)(a.Mutex("x", holdfast.WithOwner("job-7")).Lock(bg))
		_, err := b.Mutex("x").TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		he, ok := errors.AsType[*holdfast.HeldError](err)
		if !ok {
			t.Fatalf("%T is no *HeldError", err)
		}
		host, _ := os.Hostname()
		want := holdfast.Holder{Owner: "job-7", Host: host, PID: os.Getpid(), Since: asked, Note: "nightly"}
		got := he.Holder
		if !got.Since.Equal(want.Since) {
			t.Errorf("since %v, want %v", got.Since, want.Since)
		}
		got.Since, want.Since = time.Time{}, time.Time{}
		if got != want {
			t.Errorf("holder %+v, want %+v", got, want)
		}
		for _, part := range []string{`"x"`, "job-7", host, "nightly"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not name %q", err, part)
			}
		}
		unlock(t, h)
		unlock(t, must(t)(b.Mutex("x").TryLock(bg)))
	})
}

func TestTryLockOvertakesNobody(t *testing.T) {
	for _, where := range []string{"same client", "other client"} {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
				try := a
				if where == "same client" {
					try = b
				}
				sem := a.Semaphore("s", 3)
				h := must(t)(sem.Acquire(bg, 2))
				got := make(chan *holdfast.Hold)
				go func() { got <- must(t)(b.Semaphore("s", 3).Acquire(bg, 3)) }()
				synctest.Wait()
				_, err := try.Semaphore("s", 3).TryAcquire(bg, 1)
				wantErr(t, err, holdfast.ErrHeld)
				unlock(t, h)
				unlock(t, <-got)
				unlock(t, must(t)(try.Semaphore("s", 3).TryAcquire(bg, 3)))
			})
		})
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		h := must(t)(client(t, memlock.New(s)).Mutex("a").Lock(bg))
		var mu sync.Mutex
		var order []int
		var tokens []uint64
		var wg sync.WaitGroup
		for i := range 10 {
			c := client(t, memlock.New(s))
			wg.Go(func() {
				h := must(t)(c.Mutex("a").Lock(bg))
				mu.Lock()
				order, tokens = append(order, i), append(tokens, h.Token())
				mu.Unlock()
				time.Sleep(time.Second)
				unlock(t, h)
			})
			synctest.Wait()
		}
		unlock(t, h)
		wg.Wait()
		if !slices.IsSorted(order) || !slices.IsSorted(tokens) {
			t.Fatalf("order %v, tokens %v", order, tokens)
		}
	})
}

func TestWaitThatEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s), holdfast.WithNote("busy")), client(t, memlock.New(s))
		h := must(t)(a.Mutex("a").Lock(bg))
		ctx, cancel := context.WithTimeoutCause(bg, 5*time.Second, errors.New("lunch"))
		defer cancel()
		_, err := b.Mutex("a").Lock(ctx)
		we, ok := errors.AsType[*holdfast.WaitError](err)
		if !ok || we.Cause.Error() != "lunch" || we.Waited != 5*time.Second || we.Holder.Note != "busy" {
			t.Fatalf("%#v", err)
		}
		ctx2, cancel2 := context.WithTimeout(bg, time.Second)
		defer cancel2()
		_, err = b.Mutex("a").Lock(ctx2)
		wantErr(t, err, context.DeadlineExceeded)
		settle()
		if n := tickets(t, a, "a"); n != 1 {
			t.Fatalf("%d tickets, want the holder's alone", n)
		}
		unlock(t, h)
	})
}

// TestF6_EndedContextSendsNothing covers F6. It checks that nothing is sent for
// a context that has ended.
func TestF6_EndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_, err := c.Mutex("a").Lock(ctx)
		wantErr(t, err, context.Canceled)
		_, err = c.Mutex("a").TryLock(ctx)
		wantErr(t, err, context.Canceled)
		if d.joins != 0 {
			t.Fatalf("%d Joins sent", d.joins)
		}
	})
}

// TestF47_CancelCrossesGrant ends the wait at every instant around the grant,
// at a store whose answers and pushes take a while.
//
// Covers: F5.
func TestF47_CancelCrossesGrant(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprintf("local=%v", local), func(t *testing.T) {
			for us := range 40 {
				bubble(t, func(t *testing.T) {
					s := memlock.NewStore()
					slow := func(d *hooked) *hooked {
						d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
							time.Sleep(3 * time.Microsecond)
							p, err := next()
							time.Sleep(3 * time.Microsecond)
							return p, err
						}
						d.push = func(id string, p driver.Status, next func(string, driver.Status)) {
							go func() { time.Sleep(5 * time.Microsecond); next(id, p) }()
						}
						return d
					}
					a, b := client(t, memlock.New(s)), client(t, slow(hook(s)))
					if local {
						a = b
					}
					h := must(t)(a.Mutex("a").Lock(bg))
					ctx, cancel := context.WithTimeout(bg, 10*time.Microsecond+time.Duration(us)*time.Microsecond)
					defer cancel()
					done := make(chan error, 1)
					go func() {
						h, err := b.Mutex("a").Lock(ctx)
						if err == nil {
							err = h.Unlock()
						}
						done <- err
					}()
					time.Sleep(20 * time.Microsecond)
					unlock(t, h)
					if err := <-done; err != nil {
						wantErr(t, err, context.DeadlineExceeded)
					}
					settle()
					if n := tickets(t, a, "a"); n != 0 {
						t.Fatalf("after %d µs: %d tickets stay behind", us, n)
					}
					unlock(t, must(t)(a.Mutex("a").TryLock(bg)))
				})
			}
		})
	}
}

// TestPlaceIsInherited checks that the ticket belongs to the queue: a waiter
// that gives up does not cost the others their place.
func TestPlaceIsInherited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		a, b, c := client(t, memlock.New(s)), client(t, d), client(t, memlock.New(s))
		h := must(t)(a.Mutex("a").Lock(bg))
		ctx, cancel := context.WithCancel(bg)
		gone := make(chan error)
		go func() { _, err := b.Mutex("a").Lock(ctx); gone <- err }()
		synctest.Wait()
		var order []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		run := func(name string, c *holdfast.Client) {
			wg.Go(func() {
				h := must(t)(c.Mutex("a").Lock(bg))
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				unlock(t, h)
			})
			synctest.Wait()
		}
		run("c", c)
		run("b", b) // behind c, but b's place is before the place of c
		cancel()
		wantErr(t, <-gone, context.Canceled)
		unlock(t, h)
		wg.Wait()
		if fmt.Sprint(order) != "[b c]" || d.joins != 1 {
			t.Fatalf("order %v with %d Joins", order, d.joins)
		}
	})
}

func TestHundredGoroutinesCountExactly(t *testing.T) {
	s := memlock.NewStore()
	clients := []*holdfast.Client{client(t, memlock.New(s)), client(t, memlock.New(s)), client(t, memlock.New(s))}
	n, inside := 0, 0
	var wg sync.WaitGroup
	for i := range 100 {
		m := clients[i%len(clients)].Mutex("n")
		wg.Go(func() {
			for range 100 {
				h, err := m.Lock(bg)
				if err != nil {
					t.Error(err)
					return
				}
				inside++
				if inside != 1 {
					t.Errorf("%d inside", inside)
				}
				n++
				inside--
				if err := h.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n != 10000 {
		t.Fatalf("counted %d", n)
	}
}
