package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestObserverOfEachKind checks the events of a lock that is free: the call, the
// kind, the units, the owner and the times.
func TestObserverOfEachKind(t *testing.T) {
	for want, take := range map[string]func(c *holdfast.Client) (*holdfast.Hold, error){
		"mutex 1": func(c *holdfast.Client) (*holdfast.Hold, error) { return c.Mutex("a").Lock(bg) },
		"mutex 1 of nobody": func(c *holdfast.Client) (*holdfast.Hold, error) {
			return c.Mutex("a", holdfast.WithOwner("nobody")).Lock(bg)
		},
		"mutex 1 try":   func(c *holdfast.Client) (*holdfast.Hold, error) { return c.Mutex("a").TryLock(bg) },
		"reader 1":      func(c *holdfast.Client) (*holdfast.Hold, error) { return c.RWMutex("a").RLock(bg) },
		"writer 1 try":  func(c *holdfast.Client) (*holdfast.Hold, error) { return c.RWMutex("a").TryLock(bg) },
		"permits 2":     func(c *holdfast.Client) (*holdfast.Hold, error) { return c.Semaphore("a", 3).Acquire(bg, 2) },
		"permits 1":     func(c *holdfast.Client) (*holdfast.Hold, error) { return c.Semaphore("a", 1).Acquire(bg, 1) },
		"permits 3 try": func(c *holdfast.Client) (*holdfast.Hold, error) { return c.Semaphore("a", 3).TryAcquire(bg, 3) },
	} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, c := observed(t, memlock.New(memlock.NewStore()), holdfast.WithPrefix("prefix/"))
				h := must(t)(take(c))
				time.Sleep(3 * time.Second)
				unlock(t, h)
				unlock(t, h) // changes nothing
				event, try := strings.CutSuffix("a "+want, " try")
				r.want(t,
					fmt.Sprintf("start %s try=%v", event, try),
					"done "+event+" T after 0s, contended=false local=false, <nil>",
					"over "+event+" T held 3s, <nil>")
			})
		})
	}
}

// TestObserverOfWaits checks LockWait: it names a holder, comes once for a call,
// on the goroutine that waits, and never for a Try. A local hand-off is Local.
func TestObserverOfWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		r, c := observed(t, memlock.New(s))
		o := client(t, memlock.New(s), holdfast.WithNote("the other"))
		h := must(t)(o.Mutex("a").Lock(bg))
		ids := make(chan string, 2)
		for range 2 {
			go func() {
				ids <- goroutineID()
				h := must(t)(c.Mutex("a").Lock(bg))
				time.Sleep(time.Millisecond)
				unlock(t, h)
			}()
			synctest.Wait()
			time.Sleep(time.Second)
		}
		lines, waits := r.take()
		want := []string{
			`start a mutex 1 try=false`, `wait a mutex 1 behind "the other", <nil>`,
			`start a mutex 1 try=false`, `wait a mutex 1 behind "the other", <nil>`}
		if !slices.Equal(lines, want) {
			t.Fatalf("%q", lines)
		}
		for i := range 2 {
			if id := <-ids; waits[2*i+1] != id || waits[2*i] != id {
				t.Errorf("goroutine %s waits, and the events came on %v", id, waits)
			}
		}
		wantErr(t, tried(c.Mutex("a").TryLock(bg)), holdfast.ErrHeld)
		time.Sleep(ttl)
		unlock(t, h)
		synctest.Wait()
		time.Sleep(time.Second)
		waited := ttl + 2*time.Second
		lines, _ = r.take()
		if len(lines) == 6 && strings.HasPrefix(lines[3], "done") { // the goroutine that got the lock was first
			lines[3], lines[4] = lines[4], lines[3]
		}
		if want = []string{
			"start a mutex 1 try=true", "done a mutex 1 - after 0s, contended=false local=false, held by another",
			fmt.Sprintf("done a mutex 1 T after %v, contended=true local=false, <nil>", waited),
			"over a mutex 1 T held 1ms, <nil>",
			fmt.Sprintf("done a mutex 1 T after %v, contended=true local=true, <nil>", waited-time.Second+time.Millisecond),
			"over a mutex 1 T held 1ms, <nil>"}; !slices.Equal(lines, want) {
			t.Errorf("events:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	})
}

func tried(_ *holdfast.Hold, err error) error { return err }

// TestObserverOfReadersTogether checks that readers that share a ticket are
// reported one by one, those without a request of their own as Local.
func TestObserverOfReadersTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, c := observed(t, memlock.New(memlock.NewStore()))
		a := must(t)(c.RWMutex("a").RLock(bg))
		b := must(t)(c.RWMutex("a").RLock(bg))
		unlock(t, a)
		time.Sleep(time.Second)
		unlock(t, b)
		r.want(t, "start a reader 1 try=false", "done a reader 1 T after 0s, contended=false local=false, <nil>",
			"start a reader 1 try=false", "done a reader 1 T after 0s, contended=false local=true, <nil>",
			"over a reader 1 T held 0s, <nil>", "over a reader 1 T held 1s, <nil>")
	})
}

// TestObserverOfCallsThatFail checks that every way out of a call is reported by
// one LockDone, and calls that their arguments refuse by nothing.
func TestObserverOfCallsThatFail(t *testing.T) {
	over, cancel := context.WithCancel(bg)
	cancel()
	for want, take := range map[string]func(c *holdfast.Client, d *hooked) error{
		"context canceled": func(c *holdfast.Client, _ *hooked) error { return tried(c.Mutex("free").Lock(over)) },
		"context deadline exceeded": func(c *holdfast.Client, _ *hooked) error {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			return tried(c.Mutex("held").Lock(ctx))
		},
		"held by another": func(c *holdfast.Client, _ *hooked) error { return tried(c.Mutex("held").TryLock(bg)) },
		"in use as another kind of lock": func(c *holdfast.Client, _ *hooked) error {
			return tried(c.Semaphore("held", 3).Acquire(bg, 1))
		},
		"store: acquire": func(c *holdfast.Client, d *hooked) error {
			d.cut()
			return tried(c.Mutex("free").Lock(bg))
		},
		"client closed": func(c *holdfast.Client, _ *hooked) error {
			if err := c.Close(); err != nil {
				return err
			}
			return tried(c.Mutex("free").Lock(bg))
		},
		"": func(c *holdfast.Client, _ *hooked) error {
			_, err := c.Mutex("").Lock(bg)
			_, err2 := c.Semaphore("free", 3).Acquire(bg, 4)
			return errors.Join(err, err2, tried(c.Mutex("free", holdfast.WithTTL(-1)).Lock(bg)), c.Do(bg, "free", nil))
		},
	} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				d := hook(s)
				r, c := observed(t, d)
				h := must(t)(client(t, memlock.New(s)).Mutex("held").Lock(bg))
				if err := take(c, d); err == nil {
					t.Fatal("no error")
				}
				got, ids := r.take()
				got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "wait ") })
				switch {
				case want == "" && len(got) == 0:
				case len(got) != 2 || !strings.HasPrefix(got[0], "start ") || !strings.HasPrefix(got[1], "done ") ||
					!strings.HasSuffix(got[1], ", "+want) || !strings.Contains(got[1], " - after") || ids[0] != goroutineID() || ids[len(ids)-1] != ids[0]:
					t.Errorf("%q on %v", got, ids)
				}
				d.heal()
				unlock(t, h)
			})
		})
	}
}

// TestObserverOfNestedHolds checks that nested holds are not reported, and that
// a hold that its nested ones outlast ends with the last of them.
func TestObserverOfNestedHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, c := observed(t, memlock.New(memlock.NewStore()))
		for _, m := range []func() (*holdfast.Hold, func(context.Context) (*holdfast.Hold, error)){
			func() (*holdfast.Hold, func(context.Context) (*holdfast.Hold, error)) {
				return must(t)(c.Mutex("a").Lock(bg)), c.Mutex("a").Lock
			},
			func() (*holdfast.Hold, func(context.Context) (*holdfast.Hold, error)) {
				other := c.Semaphore("a", 5, holdfast.WithExistingSize())
				return must(t)(c.Semaphore("a", 3).Acquire(bg, 3)), func(ctx context.Context) (*holdfast.Hold, error) { return other.Acquire(ctx, 1) }
			},
		} {
			h, nest := m()
			r.take()
			in := must(t)(nest(h.Context()))
			time.Sleep(time.Second)
			unlock(t, h)
			r.want(t)
			time.Sleep(time.Second)
			unlock(t, in)
			if got, _ := r.take(); len(got) != 1 || !strings.HasSuffix(got[0], " T held 2s, <nil>") {
				t.Errorf("%q", got)
			}
			wantErr(t, tried(nest(h.Context())), holdfast.ErrReleased)
			r.want(t)
		}
	})
}

// TestObserverOfEnds checks that each end of a hold is reported once, with its
// error: on the goroutine of Unlock or Detach, or on another one after a loss or
// Close.
func TestObserverOfEnds(t *testing.T) {
	for _, test := range []struct {
		name, want string
		here       bool
		end        func(t *testing.T, c *holdfast.Client, d *hooked, h *holdfast.Hold)
	}{
		{"release", "<nil>", true, func(t *testing.T, _ *holdfast.Client, _ *hooked, h *holdfast.Hold) { unlock(t, h) }},
		{"detach", "<nil>", true, func(t *testing.T, _ *holdfast.Client, _ *hooked, h *holdfast.Hold) {
			if err := h.Detach(); err != nil {
				t.Error(err)
			}
		}},
		{"detach without an answer", "store: detach", true, func(t *testing.T, _ *holdfast.Client, d *hooked, h *holdfast.Hold) {
			d.cut()
			_ = h.Detach()
		}},
		{"release without an answer", "store: release", true, func(t *testing.T, _ *holdfast.Client, d *hooked, h *holdfast.Hold) {
			d.cut()
			_ = h.Unlock()
		}},
		{"loss found by the release", "lock lost", true, func(t *testing.T, c *holdfast.Client, d *hooked, h *holdfast.Hold) {
			d.push = func(string, driver.Status, func(string, driver.Status)) {}
			breakFirst(t, c)
			wantErr(t, h.Unlock(), holdfast.ErrLost)
		}},
		{"loss", "lock lost", false, func(t *testing.T, c *holdfast.Client, _ *hooked, _ *holdfast.Hold) { breakFirst(t, c) }},
		{"MaxHold", "lock lost", false, func(*testing.T, *holdfast.Client, *hooked, *holdfast.Hold) { time.Sleep(ttl) }},
		{"Close", "client closed", false, func(t *testing.T, c *holdfast.Client, _ *hooked, _ *holdfast.Hold) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := hook(memlock.NewStore())
				r, c := observed(t, d)
				opts := []holdfast.Option{holdfast.WithMaxHold(ttl / 2)}
				if strings.HasPrefix(test.name, "detach") {
					opts = append(opts, holdfast.WithOwner("job"))
				}
				h := must(t)(c.Mutex("a", opts...).Lock(bg))
				r.take()
				test.end(t, c, d, h)
				check := func(again bool) {
					t.Helper()
					lines, ids := r.take()
					n := 0
					for i, line := range lines {
						if strings.HasPrefix(line, "over ") {
							n++
							if !strings.HasSuffix(line, ", "+test.want) || (ids[i] == goroutineID()) != test.here {
								t.Errorf("%q on goroutine %s", line, ids[i])
							}
						}
					}
					if n == 1 == again || n > 1 {
						t.Errorf("%d HoldDone, %q", n, lines)
					}
				}
				check(false)
				d.heal()
				_ = h.Unlock()
				time.Sleep(ttl)
				check(true)
			})
		})
	}
}

func breakFirst(t *testing.T, c *holdfast.Client) {
	t.Helper()
	l, err := c.Inspect(bg, "a")
	if err == nil {
		err = c.Break(bg, "a", l.Holders[0].ID)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestObserverOfALossBeforeLockDone checks that HoldDone comes after LockDone has
// returned, also if the hold is lost earlier.
func TestObserverOfALossBeforeLockDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []string
		var c *holdfast.Client
		c = client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(&holdfast.Observer{
			LockDone: func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context {
				breakFirst(t, c)
				time.Sleep(time.Second)
				order = append(order, "LockDone")
				return context.WithValue(ctx, valueKey("done"), "yes")
			},
			HoldDone: func(ctx context.Context, e holdfast.HoldDoneInfo) {
				order = append(order, fmt.Sprint("HoldDone ", ctx.Value(valueKey("done")), " ", class(e.Err)))
			},
		}))
		h := must(t)(c.Mutex("a").Lock(bg))
		wantErr(t, h.Err(), holdfast.ErrLost)
		wantErr(t, h.Unlock(), holdfast.ErrLost)
		synctest.Wait()
		if want := []string{"LockDone", "HoldDone yes lock lost"}; !slices.Equal(order, want) {
			t.Errorf("%q", order)
		}
	})
}

// TestObserverOfTheBackground checks the operations of background errors.
func TestObserverOfTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &unheard{hooked: hook(memlock.NewStore())}
		r, c := observed(t, d)
		h := must(t)(c.Mutex("a").Lock(bg))
		d.cut()
		time.Sleep(ttl / 2)
		_ = h.Unlock()
		time.Sleep(ttl)
		lines, ids := r.take()
		for _, op := range []string{"watch", "renew", "leave"} {
			i := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "background "+op) })
			if i < 0 || lines[i] != `background `+op+` "", store: `+op || ids[i] == goroutineID() {
				t.Errorf("%s: %q on %v", op, lines, ids)
			}
		}
	})
}
