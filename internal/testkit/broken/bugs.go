package broken

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// plantedDriver is a sound driver with one bug added.
type plantedDriver struct {
	driver.Driver
	join  func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error)
	renew func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error)
	leave func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error)
	push  func(id string, p driver.Status) (driver.Status, bool) // false: the push is dropped
}

func (d *plantedDriver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if d.join != nil {
		return d.join(ctx, t, wait)
	}
	return d.Driver.Join(ctx, t, wait)
}

func (d *plantedDriver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.renew != nil {
		return d.renew(ctx, refs)
	}
	return d.Driver.Renew(ctx, refs)
}

func (d *plantedDriver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.leave != nil {
		return d.leave(ctx, refs)
	}
	return d.Driver.Leave(ctx, refs)
}

func (d *plantedDriver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return d.Driver.Watch(ctx, func(id string, p driver.Status) {
		if d.push != nil {
			var ok bool
			if p, ok = d.push(id, p); !ok {
				return
			}
		}
		notify(id, p)
	})
}

// onBroken returns a function that opens a store with a flaw, and applies plant
// to each driver.
func onBroken(flaw string, plant func(*plantedDriver, *Store)) func(func(func())) Opener {
	return func(func(func())) Opener {
		s := NewStore(flaw)
		return func(context.Context, string) (driver.Driver, error) {
			d := &plantedDriver{Driver: New(s)}
			if plant != nil {
				plant(d, s)
			}
			return d, nil
		}
	}
}

// onMemory is onBroken for the sound store in memory.
func onMemory(plant func(*plantedDriver)) func(func(func())) Opener {
	return func(func(func())) Opener {
		s := memlock.NewStore()
		return func(context.Context, string) (driver.Driver, error) {
			d := &plantedDriver{Driver: memlock.New(s)}
			if plant != nil {
				plant(d)
			}
			return d, nil
		}
	}
}

// evictNowAndThen removes a ticket in this state from a queue now and then, as
// a store does that drops keys; no client is notified.
func (d *plantedDriver) evictNowAndThen(state driver.State, oneIn int) {
	d.leave = func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
		ps, err := d.Driver.Leave(ctx, refs)
		if rand.IntN(oneIn) == 0 {
			if l, e := d.Inspect(ctx, refs[0].Name); e == nil {
				for _, t := range l.Tickets {
					if t.State == state {
						_ = d.Break(ctx, refs[0].Name, t.ID)
						break
					}
				}
			}
		}
		return ps, err
	}
}

// changeStatus changes all answers about a ticket.
func (d *plantedDriver) changeStatus(change func(p driver.Status, t *driver.Ticket) driver.Status) {
	d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
		p, err := d.Driver.Join(ctx, t, wait)
		return change(p, t), err
	}
	d.renew = func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
		ps, err := d.Driver.Renew(ctx, refs)
		for i := range ps {
			ps[i] = change(ps[i], refs[i].Ticket)
		}
		return ps, err
	}
}

// dropGiveUp drops the request that gives up a wait.
func (d *plantedDriver) dropGiveUp() {
	d.leave = func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
		ps := make([]driver.Status, len(refs))
		for i, r := range refs {
			ps[i].State = driver.Gone
			if r.State == driver.Held {
				got, err := d.Driver.Leave(ctx, refs[i:i+1])
				if err != nil {
					return nil, err
				}
				ps[i] = got[0]
			}
		}
		return ps, nil
	}
}

// Opener opens one more client of a store. It ignores the URL.
type Opener = func(ctx context.Context, url string) (driver.Driver, error)

// Bug is a bug that is planted in a driver or its store.
type Bug struct {
	Name  string
	Check string // the check that must find it, "C1" to "C10"
	// Open creates a store. It passes to cleanup the functions to call when the
	// store is no longer needed.
	Open func(cleanup func(func())) Opener
	// Long is the number of holds in 1000 that must last longer than most of a
	// lease for the bug to be met soon; 0 is any.
	Long int
}

// Bugs returns all bugs.
func Bugs() []Bug { return bugs }

// Sound returns the two stores in which bugs are planted, without a bug.
func Sound() map[string]func(cleanup func(func())) Opener {
	return map[string]func(func(func())) Opener{"broken": onBroken(None, nil), "memory": onMemory(nil)}
}

var bugs = []Bug{
	{"no owner check on release", "C1", onBroken("strangers-leave", func(d *plantedDriver, _ *Store) {
		// Every release is repeated, as if its answer had been lost.
		d.leave = func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
			ps, err := d.Driver.Leave(ctx, refs)
			_, _ = d.Driver.Leave(ctx, refs)
			return ps, err
		}
	}), 50},
	{"room for one too many", "C1", onBroken("two-holders", nil), 0},
	{"id order without serialised joins", "C1", onBroken("racy", nil), 0},
	{"readers look, and take later", "C1", onBroken("shared-racy", nil), 100},
	{"holders counted instead of units", "C1", onBroken("heads-counted", nil), 50},
	{"what others leave is released", "C1", onBroken("leave-is-release", nil), 50},
	{"claim counted from the answer", "C1", onMemory(func(d *plantedDriver) {
		// Answers come late, and the client counts the lease from their
		// arrival. Each ticket is renewed once.
		var once sync.Map
		d.renew = func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
			for _, r := range refs {
				if _, again := once.LoadOrStore(r.ID, true); again && r.State == driver.Held {
					return nil, driver.Errorf(driver.Unknown, "cut")
				}
			}
			sent := time.Now()
			ps, err := d.Driver.Renew(ctx, refs)
			time.Sleep(refs[0].TTL / 7)
			for i := range ps {
				ps[i].Lease += time.Since(sent)
			}
			return ps, err
		}
	}), 300},
	{"no own-key check after waiting", "C1", onMemory(func(d *plantedDriver) {
		d.evictNowAndThen(driver.Waiting, 20)
		var n atomic.Uint64 // pushes come in parallel
		n.Store(1 << 40)
		d.push = func(_ string, p driver.Status) (driver.Status, bool) {
			if p.State == driver.Gone {
				p = driver.Status{State: driver.Held, Token: n.Add(1)}
			}
			return p, true
		}
	}), 50},
	{"expiry from a client's clock", "C1", onMemory(func(d *plantedDriver) {
		// The client's clock is behind by three quarters of the TTL.
		d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
			c := *t
			c.TTL /= 4
			p, err := d.Driver.Join(ctx, &c, wait)
			p.Lease *= 4
			return p, err
		}
	}), 300},
	{"re-created on renewal", "C1", onMemory(func(d *plantedDriver) {
		d.evictNowAndThen(driver.Held, 3)
		d.push = func(_ string, p driver.Status) (driver.Status, bool) { return p, p.State != driver.Gone }
		d.changeStatus(func(p driver.Status, t *driver.Ticket) driver.Status {
			if p.State == driver.Gone && p.Err == nil && p.Token == 0 && p.Holder == "" {
				return driver.Status{State: driver.Held, Token: 1, Lease: t.TTL}
			}
			return p
		})
		d.join = nil
	}), 300},
	{"token as a double", "C2", onMemory(func(d *plantedDriver) {
		d.changeStatus(func(p driver.Status, _ *driver.Ticket) driver.Status { p.Token &^= 1<<12 - 1; return p })
		d.push = func(_ string, p driver.Status) (driver.Status, bool) { p.Token &^= 1<<12 - 1; return p, true }
	}), 0},
	{"token from a counter that restarts", "C3", onBroken("idle-restarts", nil), 0},
	{"token from a plain counter, data lost", "C3", func(cleanup func(func())) Opener {
		s := NewStore("counter-only")
		timer := time.AfterFunc(time.Second, s.LoseData)
		cleanup(func() { timer.Stop() })
		return func(context.Context, string) (driver.Driver, error) { return New(s), nil }
	}, 0},
	{"last come, first served", "C4", onBroken("last-come", nil), 0},
	{"two grants that no order explains", "C5", onBroken("two-holders", nil), 0},
	{"no look after subscribing", "C7", onMemory(func(d *plantedDriver) {
		d.push = func(string, driver.Status) (driver.Status, bool) { return driver.Status{}, false }
		d.renew = func(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
			ps, err := d.Driver.Renew(ctx, refs)
			for i := range ps {
				if refs[i].State == driver.Waiting {
					ps[i] = driver.Status{State: driver.Waiting, Lease: refs[i].TTL}
				}
			}
			return ps, err
		}
	}), 0},
	{"a line that keeps the dead", "C7", onBroken("immortal", func(d *plantedDriver, _ *Store) { d.dropGiveUp() }), 0},
	{"clean-up on the cancelled context", "C8", onMemory(func(d *plantedDriver) { d.dropGiveUp() }), 0},
	{"hidden retry of a counting script", "C8", onBroken("counting-joins", func(d *plantedDriver, _ *Store) {
		d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
			_, _ = d.Driver.Join(ctx, t, wait)
			return d.Driver.Join(ctx, t, wait)
		}
	}), 0},
	{"held told as refused", "C9", onMemory(func(d *plantedDriver) {
		d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
			p, err := d.Driver.Join(ctx, t, wait)
			if err == nil && !wait && p.State == driver.Gone {
				err = driver.Errorf(driver.Refused, "it is held")
			}
			return p, err
		}
	}), 0},
}
