package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// stage is the place of a callback: a client with one lock of some kind.
type stage struct {
	*testing.T
	d     *hooked
	c     *holdfast.Client
	other *holdfast.Client
	gate  chan struct{} // open when a blocked callback may continue
	calls atomic.Int32

	mu     sync.Mutex
	unlock func() error // of the present hold
}

func (s *stage) hold(unlock func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlock = unlock
}

// held returns the Unlock of the present hold, or nil before Lock has returned
// it.
func (s *stage) held() func() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unlock
}

// backs are the acts of a callback, by name.
var backs = map[string]func(s *stage){
	"nothing": func(*stage) {},
	"Unlock": func(s *stage) {
		if unlock := s.held(); unlock != nil {
			_ = unlock()
		}
	},
	"Lock": func(s *stage) {
		h, err := s.c.Mutex("elsewhere").Lock(bg)
		if err == nil {
			err = h.Unlock()
		}
		if err != nil && !errors.Is(err, holdfast.ErrClosed) {
			s.Errorf("Lock in a callback: %v", err)
		}
	},
	"TryLock": func(s *stage) {
		if h, err := s.c.Mutex("a").TryLock(bg); err == nil {
			_ = h.Unlock()
		}
	},
	"Once": func(s *stage) {
		ran := false
		_, err := s.c.Once(bg, "elsewhere", time.Now(), func(context.Context) error { ran = true; return nil })
		if !ran && err == nil || err != nil && !errors.Is(err, holdfast.ErrClosed) {
			s.Errorf("Once in a callback: %v, ran: %v", err, ran)
		}
	},
	"Lead": func(s *stage) {
		ran := false
		err := s.c.Lead(bg, "elsewhere", func(context.Context) error { ran = true; return nil })
		if !ran && err == nil || err != nil && !errors.Is(err, holdfast.ErrClosed) {
			s.Errorf("Lead in a callback: %v, ran: %v", err, ran)
		}
	},
	"Break": func(s *stage) {
		if l, err := s.c.Inspect(bg, "a"); err == nil && len(l.Holders) > 0 && l.Holders[0].Holder.Note == "own" {
			_ = s.c.Break(bg, "a", l.Holders[0].ID)
		}
	},
	"Close": func(s *stage) { _ = s.c.Close() },
	"Close, then exit": func(s *stage) {
		_ = s.c.Close()
		runtime.Goexit()
	},
	"Close twice at once": func(s *stage) {
		over := make(chan struct{})
		go func() { defer close(over); _ = s.c.Close() }()
		_ = s.c.Close()
		<-over
	},
	"Shutdown": func(s *stage) { _ = s.c.Shutdown(bg) },
	"Shutdown out of time": func(s *stage) {
		ended, cancel := context.WithCancel(bg)
		cancel()
		_ = s.c.Shutdown(ended)
	},
	"block": func(s *stage) { <-s.gate },
	"panic": func(*stage) { panic("of the observer") },
	"exit":  func(s *stage) { runtime.Goexit() },
}

// callbacks are options whose functions call back, one each, by the function's name.
var callbacks = map[string]func(back func()) holdfast.ClientOption{
	"LockStart": observer(func(o *holdfast.Observer, back func()) {
		o.LockStart = func(ctx context.Context, _ holdfast.LockStartInfo) context.Context { back(); return ctx }
	}),
	"LockWait": observer(func(o *holdfast.Observer, back func()) {
		o.LockWait = func(context.Context, holdfast.LockWaitInfo) { back() }
	}),
	"LockDone": observer(func(o *holdfast.Observer, back func()) {
		o.LockDone = func(ctx context.Context, _ holdfast.LockDoneInfo) context.Context { back(); return ctx }
	}),
	"HoldDone": observer(func(o *holdfast.Observer, back func()) {
		o.HoldDone = func(context.Context, holdfast.HoldDoneInfo) { back() }
	}),
	"BackgroundError": observer(func(o *holdfast.Observer, back func()) {
		o.BackgroundError = func(context.Context, holdfast.BackgroundErrorInfo) { back() }
	}),
	"WithWaiting": func(back func()) holdfast.ClientOption {
		return holdfast.WithWaiting(func(holdfast.Waiting) { back() })
	},
}

func observer(set func(o *holdfast.Observer, back func())) func(back func()) holdfast.ClientOption {
	return func(back func()) holdfast.ClientOption {
		o := new(holdfast.Observer)
		set(o, back)
		return holdfast.WithObserver(o)
	}
}

// kinds are the kinds of holds. Each function takes a lock and returns its
// unlock function.
var kinds = map[string]func(s *stage) (func() error, error){
	"Hold": func(s *stage) (func() error, error) {
		h, err := s.c.Mutex("a").Lock(bg)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	},
	"MultiHold": func(s *stage) (func() error, error) {
		h, err := s.c.Multi([]string{"a", "b"}).Lock(bg)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	},
	"MultiHold that has a name": func(s *stage) (func() error, error) {
		h, err := s.c.Multi([]string{"0", "a"}).Lock(bg)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	},
	"nested": func(s *stage) (func() error, error) {
		h, err := s.c.Mutex("a").Lock(bg)
		if err != nil {
			return nil, err
		}
		in, err := s.c.Mutex("a").Lock(h.Context())
		if err != nil {
			return h.Unlock, nil // Close came first
		}
		return func() error { return errors.Join(in.Unlock(), h.Unlock()) }, nil
	},
	"reader": func(s *stage) (func() error, error) {
		h, err := s.c.RWMutex("r").RLock(bg)
		if err != nil {
			return nil, err
		}
		in, err := s.c.Mutex("a").Lock(h.Context())
		if err != nil {
			return h.Unlock, nil // Close came first
		}
		return func() error { return errors.Join(in.Unlock(), h.Unlock()) }, nil
	},
	"detached": func(s *stage) (func() error, error) {
		h, err := s.c.Mutex("a", holdfast.WithOwner("job"), holdfast.WithTTL(ttl)).Lock(bg)
		if err != nil {
			return nil, err
		}
		return func() error { return h.Detach() }, nil
	},
	"MaxHold": func(s *stage) (func() error, error) {
		h, err := s.c.Mutex("a", holdfast.WithMaxHold(ttl)).Lock(bg)
		if err != nil {
			return nil, err
		}
		return h.Unlock, nil
	},
	"Do with MaxHold": function(func(s *stage, ctx context.Context, fn work) error {
		return s.c.Do(ctx, "a", fn, holdfast.WithMaxHold(ttl))
	}),
	"Once with MaxHold": function(func(s *stage, ctx context.Context, fn work) error {
		_, err := s.c.Once(ctx, "a", time.Now(), fn, holdfast.WithMaxHold(ttl))
		return err
	}),
	"Lead with MaxHold": function(func(s *stage, ctx context.Context, fn work) error {
		return s.c.Lead(ctx, "a", fn, holdfast.WithMaxHold(ttl))
	}),
	"Multi.Do": function(func(s *stage, ctx context.Context, fn work) error {
		return s.c.Multi([]string{"a", "b"}).Do(ctx, fn)
	}),
	"Lead by an owner": function(func(s *stage, ctx context.Context, fn work) error {
		return s.c.Lead(ctx, "a", fn, holdfast.WithOwner("job"))
	}),
	"Do in Do": function(func(s *stage, ctx context.Context, fn work) error {
		return s.c.Do(ctx, "a", func(ctx context.Context) error { return s.c.Do(ctx, "a", fn) })
	}),
	"Once in Do": function(func(s *stage, ctx context.Context, fn work) error {
		return s.c.Do(ctx, "a", func(ctx context.Context) error {
			_, err := s.c.Once(ctx, "a", time.Now(), fn)
			return err
		})
	}),
	"Do": function(func(s *stage, ctx context.Context, fn work) error { return s.c.Do(ctx, "a", fn) }),
	"Once": function(func(s *stage, ctx context.Context, fn work) error {
		_, err := s.c.Once(ctx, "a", time.Now(), fn)
		return err
	}),
	"Lead": function(func(s *stage, ctx context.Context, fn work) error { return s.c.Lead(ctx, "a", fn) }),
}

// function is a kind of holds under which a function runs until unlock, or until its
// context ends. The goroutine that returns from the function may call back, and unlock then
// waits for itself, as the user's own code would: the gate ends that.
func function(run func(s *stage, ctx context.Context, fn work) error) func(s *stage) (func() error, error) {
	return func(s *stage) (func() error, error) {
		ctx, cancel := context.WithCancel(bg)
		begun, result := make(chan struct{}, 1), make(chan error, 1)
		go func() {
			defer close(result)
			result <- run(s, ctx, func(ctx context.Context) error {
				select {
				case begun <- struct{}{}:
				default: // another term
				}
				<-ctx.Done()
				return nil
			})
		}()
		select {
		case <-begun:
			return func() error {
				cancel()
				select {
				case err := <-result:
					return err
				case <-s.gate:
					return nil
				}
			}, nil
		case err, ok := <-result:
			cancel()
			if !ok {
				runtime.Goexit() // as the callback did
			}
			return nil, err
		}
	}
}

// TestF111_CallbacksMayCallBack checks that calls return and the lock works
// whatever a callback does. It tries each callback with each act and each kind
// of hold.
func TestF111_CallbacksMayCallBack(t *testing.T) {
	for at, option := range callbacks {
		for does, back := range backs {
			closes := strings.HasPrefix(does, "Close") || strings.HasPrefix(does, "Shutdown")
			for kind, take := range kinds {
				holds := kind == "reader" || kind == "MultiHold that has a name"
				if does == "Shutdown" && (at == "LockDone" || holds && (at == "LockWait" || at == "WithWaiting")) {
					continue // it waits for a lock of the goroutine that calls it
				}
				if at == "HoldDone" && does == "Unlock" && strings.HasSuffix(kind, " with MaxHold") {
					continue // it may wait for the function whose goroutine calls it
				}
				t.Run(at+"/"+does+"/"+kind, func(t *testing.T) {
					bubble(t, func(t *testing.T) { play(t, option, back, take, closes) })
				})
			}
		}
	}
}

func play(t *testing.T, option func(func()) holdfast.ClientOption, back func(*stage), take func(*stage) (func() error, error), closes bool) {
	store := memlock.NewStore()
	s := &stage{T: t, d: hook(store), gate: make(chan struct{}), other: client(t, memlock.New(store))}
	s.c = client(t, &counting{hooked: s.d}, holdfast.WithNote("own"), option(func() {
		if s.calls.Add(1) == 1 { // not the events that the callback itself causes
			back(s)
		}
	}))
	// Another holder makes the Lock wait; then a renewal fails, and then the
	// hold is lost.
	h := must(t)(s.other.Mutex("a").Lock(bg))
	over := make(chan struct{})
	go func() {
		defer close(over)
		unlock, err := take(s)
		if err != nil {
			if !errors.Is(err, holdfast.ErrClosed) && !errors.Is(err, holdfast.ErrLost) {
				t.Errorf("Lock: %v", err)
			}
			return
		}
		s.hold(unlock)
		s.d.set(func(d *hooked) {
			d.renew = func(context.Context, []driver.Ref, batchFunc) ([]driver.Status, error) {
				return nil, driver.Errorf(driver.Unavailable, "for a moment")
			}
		})
		time.Sleep(ttl / 2)
		s.d.heal()
		time.Sleep(ttl)
		if l, _ := s.other.Inspect(bg, "a"); len(l.Holders) > 0 {
			_ = s.other.Break(bg, "a", l.Holders[0].ID)
		}
		time.Sleep(time.Second)
		_ = unlock()
	}()
	time.Sleep(time.Second)
	unlock(t, h)
	select {
	case <-over: // the callback does not block its caller
	case <-time.After(time.Hour):
		// The callback blocks its caller, or waits for the gate: other locks
		// work meanwhile.
		unlock(t, must(t)(s.c.Mutex("z").Lock(bg)))
		close(s.gate)
		<-over
	}
	if s.calls.Load() == 0 {
		t.Error("the callback was not called")
	}
	select {
	case <-s.gate:
	default:
		close(s.gate)
	}
	synctest.Wait()
	if !closes {
		if h, err := s.c.Mutex("a").TryLock(bg); err != nil {
			t.Errorf("the lock is stuck: %v", err)
		} else {
			unlock(t, h)
		}
	}
	if err := s.c.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"0", "a", "b", "elsewhere"} {
		if n := tickets(t, s.other, name); n != 0 {
			t.Errorf("%d tickets of %s stay", n, name)
		}
	}
}

// TestF111_LockWaitThatEndsItsGoroutine checks that a LockWait that ends the
// goroutine of its Lock leaves no waiter behind, whichever of several it is.
func TestF111_LockWaitThatEndsItsGoroutine(t *testing.T) {
	for exits := range 3 {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			var waits atomic.Int32
			c := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{LockWait: func(context.Context, holdfast.LockWaitInfo) {
				if int(waits.Add(1)) == exits+1 {
					runtime.Goexit()
				}
			}}))
			o := client(t, memlock.New(s))
			h := must(t)(o.Mutex("a").Lock(bg))
			got := make(chan *holdfast.Hold, 3)
			for range 3 {
				go func() { got <- must(t)(c.Mutex("a").Lock(bg)) }()
				synctest.Wait()
			}
			unlock(t, h)
			for range 2 {
				unlock(t, <-got)
			}
			if n := tickets(t, o, "a"); n != 0 || waits.Load() != 3 {
				t.Errorf("%d tickets stay, %d waits", n, waits.Load())
			}
		})
	}
}

// TestF111_BackgroundErrorThatBlocksGathersNothing checks that a BackgroundError
// that blocks delays the other errors, of which the newest are kept, and that no
// goroutines gather behind it.
func TestF111_BackgroundErrorThatBlocksGathersNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := make(chan struct{})
		var told atomic.Int32
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(onBackgroundError(func(error) { told.Add(1); <-gate })))
		before := runtime.NumGoroutine()
		for range 100 {
			holdfast.ReportBackground(c, errors.New("one more"))
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 1 || told.Load() != 1 {
			t.Errorf("%d goroutines more, %d told", n, told.Load())
		}
		close(gate)
		synctest.Wait()
		if n := told.Load(); n < 16 || n > 17 {
			t.Errorf("%d errors told of 100, want the newest 16, and one before them", n)
		}
	})
}

// TestF111_HoldDoneMayUnlock covers F111. It checks that the HoldDone of an Unlock
// may unlock the same hold again: both calls return, with the same result. The locks of
// functions have no Unlock.
func TestF111_HoldDoneMayUnlock(t *testing.T) {
	for _, kind := range []string{"Hold", "MultiHold", "nested", "reader"} {
		take := kinds[kind]
		t.Run(kind, func(t *testing.T) {
			// Not in a bubble, whose time stands still while a goroutine waits for a mutex.
			s := &stage{T: t, d: hook(memlock.NewStore())}
			s.c = client(t, s.d, holdfast.WithObserver(&holdfast.Observer{HoldDone: func(context.Context, holdfast.HoldDoneInfo) {
				s.calls.Add(1)
				if err := s.held()(); err != nil {
					t.Errorf("Unlock in HoldDone: %v", err)
				}
			}}))
			unlock, err := take(s)
			if err != nil {
				t.Fatal(err)
			}
			s.hold(unlock)
			over := make(chan error, 1)
			go func() { over <- unlock() }()
			select {
			case err := <-over:
				if err != nil || s.calls.Load() == 0 {
					t.Errorf("Unlock: %v, after %d calls of HoldDone", err, s.calls.Load())
				}
			case <-time.After(time.Minute):
				panic("Unlock waits for its own HoldDone") // Close would wait for it, too
			}
		})
	}
}

// TestF111_CloseDoesNotWaitForACallback checks that Close and Shutdown return while the
// function of a wait blocks, that the wait's place or grant is free at the store then, and
// that the Lock returns ErrClosed when the function does. Another wait of the client is a
// reader that would share the grant.
func TestF111_CloseDoesNotWaitForACallback(t *testing.T) {
	for _, at := range []string{"LockWait", "WithWaiting"} {
		for does, end := range map[string]func(*holdfast.Client) error{
			"Close": (*holdfast.Client).Close, "Shutdown": func(c *holdfast.Client) error { return c.Shutdown(bg) },
		} {
			for _, granted := range []bool{false, true} {
				t.Run(fmt.Sprint(at, "/", does, "/granted ", granted), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						s := memlock.NewStore()
						gate := make(chan struct{})
						var calls atomic.Int32
						c := client(t, memlock.New(s), callbacks[at](func() {
							if calls.Add(1) == 1 {
								<-gate
							}
						}))
						other := client(t, memlock.New(s))
						h := must(t)(other.RWMutex("a").Lock(bg))
						errs := make(chan error, 2)
						for range 2 {
							go func() {
								h, err := c.RWMutex("a").RLock(bg)
								if err == nil { // the one that did not wait in a callback
									<-h.Context().Done()
									_ = h.Unlock()
								}
								errs <- err
							}()
							synctest.Wait()
						}
						if granted {
							unlock(t, h)
							synctest.Wait()
						}
						begun := time.Now()
						if err := end(c); err != nil {
							t.Error(err)
						}
						if took := time.Since(begun); took != 0 {
							t.Errorf("it took %v", took)
						}
						if n := tickets(t, other, "a"); granted && n != 0 || !granted && n != 1 {
							t.Errorf("%d tickets", n)
						}
						close(gate)
						closed := 0
						for range 2 {
							if errors.Is(<-errs, holdfast.ErrClosed) {
								closed++
							}
						}
						if closed != 2 && !(granted && closed == 1) {
							t.Errorf("%d waits ended with ErrClosed", closed)
						}
					})
				})
			}
		}
	}
}
