// Package planted has drivers with one bug each, every one of which the check
// that is named for it has to see: a checker that has never failed may check
// nothing.
package planted

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/broken"
	"github.com/holdfast-go/holdfast/memlock"
)

// planted is a driver with one bug, made of a sound one.
type planted struct {
	driver.Driver
	join  func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error)
	renew func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error)
	leave func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error)
	push  func(id string, p driver.Place) (driver.Place, bool) // false: it does not come
}

func (d *planted) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if d.join != nil {
		return d.join(ctx, t, wait)
	}
	return d.Driver.Join(ctx, t, wait)
}

func (d *planted) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if d.renew != nil {
		return d.renew(ctx, refs)
	}
	return d.Driver.Renew(ctx, refs)
}

func (d *planted) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if d.leave != nil {
		return d.leave(ctx, refs)
	}
	return d.Driver.Leave(ctx, refs)
}

func (d *planted) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	return d.Driver.Watch(ctx, func(id string, p driver.Place) {
		if d.push != nil {
			var ok bool
			if p, ok = d.push(id, p); !ok {
				return
			}
		}
		moved(id, p)
	})
}

// on makes what opens a store with a flaw, plus what plant does to each driver.
func on(flaw string, plant func(*planted, *broken.Store)) func(func(func())) Opener {
	return func(func(func())) Opener {
		s := broken.NewStore(flaw)
		return func(context.Context, string) (driver.Driver, error) {
			d := &planted{Driver: broken.New(s)}
			if plant != nil {
				plant(d, s)
			}
			return d, nil
		}
	}
}

// memory is on for the sound store in memory.
func memory(plant func(*planted)) func(func(func())) Opener {
	return func(func(func())) Opener {
		s := memlock.NewStore()
		return func(context.Context, string) (driver.Driver, error) {
			d := &planted{Driver: memlock.New(s)}
			if plant != nil {
				plant(d)
			}
			return d, nil
		}
	}
}

// evict removes a ticket of a line in this state now and then, as a store does
// that drops keys; nobody is told.
func (d *planted) evict(state driver.State, oneIn int) {
	d.leave = func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
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

// places changes all answers about a ticket.
func (d *planted) places(change func(p driver.Place, t *driver.Ticket) driver.Place) {
	d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
		p, err := d.Driver.Join(ctx, t, wait)
		return change(p, t), err
	}
	d.renew = func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
		ps, err := d.Driver.Renew(ctx, refs)
		for i := range ps {
			ps[i] = change(ps[i], refs[i].Ticket)
		}
		return ps, err
	}
}

// forgetful drops the request by which a wait is given up.
func (d *planted) forgetful() {
	d.leave = func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
		ps := make([]driver.Place, len(refs))
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

// Opener opens one more client of a store, whatever the URL says.
type Opener = func(ctx context.Context, url string) (driver.Driver, error)

// Bug is a bug that is planted in a driver or its store.
type Bug struct {
	Name  string
	Check string // the one that has to see it, "C1" to "C9"
	// Open makes a store of its own. Cleanup takes what is to be called when it
	// is not needed any more.
	Open func(cleanup func(func())) Opener
	// Long is how many of 1000 holds have to last longer than most of a lease
	// for it to be met soon; 0 is no matter.
	Long int
}

// Bugs returns them all.
func Bugs() []Bug { return bugs }

// Sound returns the two stores that bugs are planted in, without one.
func Sound() map[string]func(cleanup func(func())) Opener {
	return map[string]func(func(func())) Opener{"broken": on(broken.None, nil), "memory": memory(nil)}
}

var bugs = []Bug{
	{"no owner check on release", "C1", on("strangers-leave", func(d *planted, _ *broken.Store) {
		// Every release is repeated, as if its answer had been lost.
		d.leave = func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
			ps, err := d.Driver.Leave(ctx, refs)
			_, _ = d.Driver.Leave(ctx, refs)
			return ps, err
		}
	}), 50},
	{"room for one too many", "C1", on("two-holders", nil), 0},
	{"id order without serialised joins", "C1", on("racy", nil), 0},
	{"readers look, and take later", "C1", on("shared-racy", nil), 100},
	{"holders counted instead of units", "C1", on("heads-counted", nil), 50},
	{"what others leave is released", "C1", on("leave-is-release", nil), 50},
	{"claim counted from the answer", "C1", memory(func(d *planted) {
		// Answers come late, and the client counts from when they come. Each
		// ticket is renewed once.
		var once sync.Map
		d.renew = func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
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
	{"no own-key check after waiting", "C1", memory(func(d *planted) {
		d.evict(driver.Waiting, 20)
		var n atomic.Uint64 // pushes come side by side
		n.Store(1 << 40)
		d.push = func(_ string, p driver.Place) (driver.Place, bool) {
			if p.State == driver.Gone {
				p = driver.Place{State: driver.Held, Token: n.Add(1)}
			}
			return p, true
		}
	}), 50},
	{"expiry from a client's clock", "C1", memory(func(d *planted) {
		// The client's clock is behind by three quarters of the TTL.
		d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
			c := *t
			c.TTL /= 4
			p, err := d.Driver.Join(ctx, &c, wait)
			p.Lease *= 4
			return p, err
		}
	}), 300},
	{"re-created on renewal", "C1", memory(func(d *planted) {
		d.evict(driver.Held, 3)
		d.push = func(_ string, p driver.Place) (driver.Place, bool) { return p, p.State != driver.Gone }
		d.places(func(p driver.Place, t *driver.Ticket) driver.Place {
			if p.State == driver.Gone && p.Err == nil && p.Token == 0 && p.Holder == "" {
				return driver.Place{State: driver.Held, Token: 1, Lease: t.TTL}
			}
			return p
		})
		d.join = nil
	}), 300},
	{"token as a double", "C2", memory(func(d *planted) {
		d.places(func(p driver.Place, _ *driver.Ticket) driver.Place { p.Token &^= 1<<12 - 1; return p })
		d.push = func(_ string, p driver.Place) (driver.Place, bool) { p.Token &^= 1<<12 - 1; return p, true }
	}), 0},
	{"token from a counter that restarts", "C3", on("idle-restarts", nil), 0},
	{"token from a plain counter, data lost", "C3", func(cleanup func(func())) Opener {
		s := broken.NewStore("counter-only")
		timer := time.AfterFunc(time.Second, s.LoseData)
		cleanup(func() { timer.Stop() })
		return func(context.Context, string) (driver.Driver, error) { return broken.New(s), nil }
	}, 0},
	{"last come, first served", "C4", on("last-come", nil), 0},
	{"two grants that no order explains", "C5", on("two-holders", nil), 0},
	{"no look after subscribing", "C7", memory(func(d *planted) {
		d.push = func(string, driver.Place) (driver.Place, bool) { return driver.Place{}, false }
		d.renew = func(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
			ps, err := d.Driver.Renew(ctx, refs)
			for i := range ps {
				if refs[i].State == driver.Waiting {
					ps[i] = driver.Place{State: driver.Waiting, Lease: refs[i].TTL}
				}
			}
			return ps, err
		}
	}), 0},
	{"a line that keeps the dead", "C7", on("immortal", func(d *planted, _ *broken.Store) { d.forgetful() }), 0},
	{"clean-up on the cancelled context", "C8", memory(func(d *planted) { d.forgetful() }), 0},
	{"hidden retry of a counting script", "C8", on("counting-joins", func(d *planted, _ *broken.Store) {
		d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
			_, _ = d.Driver.Join(ctx, t, wait)
			return d.Driver.Join(ctx, t, wait)
		}
	}), 0},
	{"held told as refused", "C9", memory(func(d *planted) {
		d.join = func(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
			p, err := d.Driver.Join(ctx, t, wait)
			if err == nil && !wait && p.State == driver.Gone {
				err = driver.Errorf(driver.Refused, "it is held")
			}
			return p, err
		}
	}), 0},
}
