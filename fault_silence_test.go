package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// locking calls Lock, and returns the channel of its result.
func locking(ctx context.Context, m *holdfast.Mutex) <-chan error {
	done := make(chan error, 1)
	go func() {
		h, err := m.Lock(ctx)
		if err == nil {
			err = h.Unlock()
		}
		done <- err
	}()
	return done
}

// stillWaiting fails the test if a wait has ended.
func stillWaiting(t *testing.T, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("the wait ended: %v", err)
	default:
	}
}

// TestF105_WaitOutlastsSilence checks that a wait that has its place outlasts a
// store that is silent for longer than a lease, however the silence begins:
// after a Gone in an answer or a push, or after refusals for a while.
func TestF105_WaitOutlastsSilence(t *testing.T) {
	gone := func(context.Context, []driver.Ref, batchFunc) ([]driver.Status, error) {
		return []driver.Status{{State: driver.Gone}}, nil
	}
	for name, begin := range map[string]func(d *hooked, push func(driver.Status)){
		"at once": func(d *hooked, _ func(driver.Status)) { d.cut() },
		"after an answer": func(d *hooked, _ func(driver.Status)) {
			time.Sleep(ttl / 2)
			d.cut()
		},
		"after Gone in an answer": func(d *hooked, _ func(driver.Status)) {
			d.cut()
			d.set(func(d *hooked) { d.renew = gone })
			time.Sleep(ttl / 2)
		},
		"after Gone in a push": func(d *hooked, push func(driver.Status)) {
			d.cut()
			push(driver.Status{State: driver.Gone})
		},
		"and refused connections": func(d *hooked, _ func(driver.Status)) {
			down := driver.Errorf(driver.Unavailable, "connection refused")
			d.cut()
			d.set(func(d *hooked) {
				d.join = func(context.Context, *driver.Ticket, joinFunc) (driver.Status, error) { return driver.Status{}, down }
				d.renew = func(context.Context, []driver.Ref, batchFunc) ([]driver.Status, error) { return nil, down }
				d.look = func(context.Context, lookFunc) (driver.Queue, error) { return driver.Queue{}, down }
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				d := hook(s)
				var moved func(string, driver.Status)
				var id string
				w := &watched{hooked: d, moved: &moved, joined: &id}
				c, other := client(t, w), client(t, memlock.New(s))
				h := must(t)(other.Mutex("a").Lock(bg))
				first := locking(bg, c.Mutex("a"))
				synctest.Wait()
				second := locking(bg, c.Mutex("a")) // behind the first wait, without a place of its own
				synctest.Wait()
				begin(d, func(p driver.Status) { moved(id, p) })
				time.Sleep(5 * ttl / 2)
				stillWaiting(t, first)
				stillWaiting(t, second)
				unlock(t, h)
				d.heal()
				healed := time.Now()
				for _, done := range []<-chan error{first, second} {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(healed); took > 6*time.Second {
					t.Errorf("held %v after the store was back", took)
				}
			})
		})
	}
}

// watched is a driver that records the last ticket, and lets a test push.
type watched struct {
	*hooked
	moved  *func(string, driver.Status)
	joined *string
}

func (d *watched) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	*d.joined = t.ID
	return d.hooked.Join(ctx, t, wait)
}

func (d *watched) Watch(ctx context.Context, moved func(string, driver.Status)) error {
	*d.moved = moved
	return d.hooked.Watch(ctx, moved)
}

// TestF105_WaitBehindAHoldOfItsProcess checks that waits for a hold of their
// own process outlast the silence too: the goroutines have no place at the
// store, but their queue has.
func TestF105_WaitBehindAHoldOfItsProcess(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			c := client(t, d)
			h := must(t)(c.Mutex("a").Lock(bg))
			done := locking(bg, c.Mutex("a"))
			synctest.Wait()
			d.cut()
			time.Sleep(ttl / 2)
			if lost {
				time.Sleep(3 * ttl)
			}
			_ = h.Unlock()
			time.Sleep(3 * ttl)
			stillWaiting(t, done)
			d.heal()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestF105_RefusalEndsTheWait checks that, beside its context and Close, only a
// refusal ends a wait that had a place.
func TestF105_RefusalEndsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(other.Mutex("a").Lock(bg))
		done := locking(bg, c.Mutex("a"))
		synctest.Wait()
		d.cut()
		time.Sleep(2 * ttl)
		d.heal()
		d.set(func(d *hooked) {
			d.join = func(context.Context, *driver.Ticket, joinFunc) (driver.Status, error) {
				return driver.Status{}, driver.Errorf(driver.Refused, "no rights")
			}
		})
		se, ok := errors.AsType[*holdfast.StoreError](<-done)
		if !ok || driver.ClassOf(se.Err) != driver.Refused {
			t.Errorf("the wait ended with %v", se)
		}
		unlock(t, h)
	})
}

// TestF105_DeafClientLetsOthersIn checks a client whose requests arrive and
// whose answers do not, so that the store grants without the client's
// knowledge. The client does not keep the others out: its grants end with their
// leases, and it joins no queue until an answer comes. Then it goes on by
// itself.
func TestF105_DeafClientLetsOthersIn(t *testing.T) {
	for _, placed := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			c, first, other := client(t, d), client(t, memlock.New(s)), client(t, memlock.New(s))
			deafen := func() {
				d.cut() // and yet every request arrives
				d.set(func(d *hooked) {
					d.join = func(ctx context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
						_, _ = next()
						<-ctx.Done()
						return driver.Status{}, ctx.Err()
					}
					d.renew = func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
						_, _ = next()
						<-ctx.Done()
						return nil, ctx.Err()
					}
					d.leave = d.renew
				})
			}
			var h *holdfast.Hold
			var done <-chan error
			if placed {
				h = must(t)(first.Mutex("a").Lock(bg))
				done = locking(bg, c.Mutex("a"))
				synctest.Wait()
				deafen()
				unlock(t, h)
			} else { // its hold is lost, and its next goroutine joins anew
				h = must(t)(c.Mutex("a").Lock(bg))
				done = locking(bg, c.Mutex("a"))
				synctest.Wait()
				deafen()
			}
			takeTurns(t, other, ttl)
			sent := d.sentJoins()
			takeTurns(t, other, ttl)
			if n := d.sentJoins() - sent; n > 0 {
				t.Errorf("placed=%v: %d Joins sent, long after the last answer", placed, n)
			}
			stillWaiting(t, done)
			d.heal()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if !placed {
				_ = h.Unlock()
			}
		})
	}
}

// TestDeadStoreIsReported checks that a dead store is reported in time, also if
// it was slow before and the client therefore waited for answers.
func TestDeadStoreIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		slow := func() {
			d.set(func(d *hooked) {
				d.join = func(ctx context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
					time.Sleep(4 * time.Second)
					return next()
				}
			})
		}
		for _, before := range []func(){func() {}, slow} {
			d.heal()
			before()
			unlock(t, must(t)(c.Mutex("a").Lock(bg)))
			d.cut()
			start := time.Now()
			_, err := c.Mutex("a").Lock(bg)
			if _, ok := errors.AsType[*holdfast.StoreError](err); !ok {
				t.Errorf("Lock: %v", err)
			}
			if took := time.Since(start); took > 5050*time.Millisecond {
				t.Errorf("reported after %v", took)
			}
		}
	})
}
