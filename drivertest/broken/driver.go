package broken

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Driver is a client of a broken store.
type Driver struct {
	s          *Store
	done       chan struct{} // closed by Close, or by the end of the process's need for a leak
	background sync.WaitGroup
	closed     atomic.Bool
	joined     atomic.Bool
	deaf       atomic.Bool

	mu    sync.Mutex
	ctx   context.Context // of Watch
	moved func(string, driver.Place)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New returns a client of s.
func New(s *Store) *Driver {
	d := &Driver{s: s, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, d)
	return d
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits {
	t := driver.Traits{
		Scheme: "broken", Fencing: true, Shared: true, Owner: true, Fair: true, Push: true, SurvivesRestart: true,
		MinTTL: 10 * time.Millisecond, MaxTTL: 10 * 365 * 24 * time.Hour,
	}
	if d.s.is("traits-change") && d.joined.Load() {
		t.MinTTL++
	}
	return t
}

// begin takes the store's lock, once the store listens.
func (d *Driver) begin(ctx context.Context) error {
	s := d.s
	if d.closed.Load() && !s.is("closed-works") {
		return driver.ErrClosed
	}
	if !s.is("context-ignored") {
		if err := driver.Before(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	for s.paused != nil {
		ch := s.paused
		s.mu.Unlock()
		end := ctx.Done()
		if s.is("hangs") {
			slow, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			end = slow.Done()
		}
		select {
		case <-ch:
		case <-end:
			return driver.Wrap(driver.Unknown, errors.New("the store is silent"))
		}
		s.mu.Lock()
	}
	return nil
}

// tell gives the store's lock back and pushes the grants.
func (d *Driver) tell(granted []*seat, byLeave bool, but string) {
	s := d.s
	type told struct {
		d  *Driver
		id string
		p  driver.Place
	}
	var all []told
	for _, x := range granted {
		p := driver.Place{State: driver.Held, Token: x.token}
		switch {
		case s.is("lost-wake-up"), s.is("push-on-leave") && !byLeave, s.is("first-reader-told") && len(all) > 0:
			continue
		case s.is("stale-push"):
			p.Token--
		}
		if x.ID != but {
			all = append(all, told{x.d, x.ID, p})
		}
	}
	clients := s.clients
	s.mu.Unlock()
	for _, t := range all {
		t.d.push(t.id, t.p)
	}
	if s.is("herd") && len(all) > 0 {
		for _, c := range clients {
			c.push("", driver.Place{})
		}
	}
}

func (d *Driver) push(id string, p driver.Place) {
	d.mu.Lock()
	ctx, moved := d.ctx, d.moved
	d.mu.Unlock()
	on := moved != nil && !d.deaf.Load()
	if on && (d.s.is("pushes-on") || ctx.Err() == nil && !d.closed.Load()) {
		moved(id, p)
	}
}

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := d.begin(ctx); err != nil {
		return driver.Place{}, err
	}
	d.joined.Store(true)
	p, granted, err := d.s.join(d, t, wait)
	d.tell(granted, false, t.ID)
	return p, err
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	var granted []*seat
	for i := range refs {
		if d.s.is("batch-cut") && i >= 100 {
			places[i] = driver.Place{State: driver.Gone}
			continue
		}
		p, more := d.s.renew(d, &refs[i])
		places[i] = p
		granted = append(granted, more...)
	}
	but := ""
	if len(refs) == 1 {
		but = refs[0].ID
	}
	d.tell(granted, false, but)
	if d.s.is("mixed-up") {
		slices.Reverse(places)
	}
	return places, nil
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if d.s.is("unsure-early") && len(refs) == 1 && refs[0].Unsure {
		return []driver.Place{{State: driver.Gone}}, nil
	}
	if d.s.is("leaves-late") && len(refs) == 1 {
		d.background.Go(func() {
			time.Sleep(5 * time.Millisecond)
			d.s.mu.Lock()
			_, granted := d.s.leave(&driver.Ref{Ticket: refs[0].Ticket})
			d.tell(granted, true, "")
		})
		return []driver.Place{{State: driver.Held}}, nil
	}
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	var granted []*seat
	for i := range refs {
		p, more := d.s.leave(&refs[i])
		places[i] = p
		granted = append(granted, more...)
	}
	d.tell(granted, true, "")
	if d.s.is("leave-mixed-up") {
		slices.Reverse(places)
	}
	return places, nil
}

// Watch implements [driver.Driver].
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.s.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.moved = ctx, moved
	return nil
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	if err := d.begin(ctx); err != nil {
		return driver.Line{}, err
	}
	l := d.s.line(name)
	granted := d.s.advance(l)
	defer d.tell(granted, false, "")
	line := driver.Line{Name: name, Token: l.last}
	if len(l.seats) == 0 {
		if d.s.is("inspect-must") {
			return line, errors.New("no such line")
		}
		return line, nil
	}
	line.Limit = l.limit
	for _, x := range l.seats {
		if d.s.is("inspect-renews") {
			x.until = d.s.now() + d.s.keep(x.TTL)
		}
		e := driver.Entry{ID: x.ID, Owner: x.Owner, State: driver.Waiting, Units: x.takes, Token: x.token, Left: x.until - d.s.now(), Meta: x.Meta}
		if x.held {
			e.State = driver.Held
		}
		if d.s.is("meta-cut") {
			e.Meta, _, _ = strings.Cut(e.Meta, "\x00")
		}
		line.Tickets = append(line.Tickets, e)
	}
	if d.s.is("inspect-unordered") {
		slices.Reverse(line.Tickets)
	}
	return line, nil
}

// Names implements [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.begin(ctx); err != nil {
			yield("", err)
			return
		}
		var names []string
		var granted []*seat
		for name, l := range d.s.lines {
			granted = append(granted, d.s.advance(l)...)
			match := strings.HasPrefix(name, prefix)
			if d.s.is("names-glob") {
				match, _ = path.Match(prefix+"*", name)
			}
			if len(l.seats) > 0 && match {
				names = append(names, name)
			}
		}
		d.tell(granted, false, "")
		if d.s.is("names-twice") {
			names = append(names, names...)
		}
		if d.s.is("names-cut") {
			names = names[:min(len(names), 100)]
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	s := d.s
	l := s.line(name)
	granted := s.advance(l)
	x := l.find(ticketID)
	if x == nil || s.is("break-holders") && !x.held {
		d.tell(granted, true, "")
		if s.is("break-says-nil") {
			return nil
		}
		return driver.ErrNoTicket
	}
	if !s.is("break-not") {
		s.remove(l, x)
	}
	if i := slices.IndexFunc(l.seats, func(y *seat) bool { return !y.held }); s.is("break-turns-round") && x.held && i >= 0 && i+1 < len(l.seats) {
		l.seats[i], l.seats[i+1] = l.seats[i+1], l.seats[i]
	}
	if s.is("break-owner") {
		l.seats = slices.DeleteFunc(l.seats, func(y *seat) bool { return y.place == x.place })
	}
	if s.is("broken-forgotten") {
		delete(s.gone, x.ID)
	}
	granted = append(granted, s.advance(l)...)
	d.tell(granted, true, "")
	if !s.is("break-untold") {
		x.d.push(x.ID, driver.Place{State: driver.Gone})
	}
	return nil
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	if d.s.is("leaks") {
		go func() { time.Sleep(time.Hour) }()
	}
	if d.s.is("close-leaves") {
		d.s.mu.Lock()
		var granted []*seat
		for _, l := range d.s.lines {
			l.seats = slices.DeleteFunc(l.seats, func(x *seat) bool { return x.d == d })
			granted = append(granted, d.s.advance(l)...)
		}
		d.tell(granted, true, "")
	}
	close(d.done)
	d.background.Wait()
	return nil
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.begin(ctx); err != nil {
		return "", err
	}
	d.s.mu.Unlock()
	if d.s.is("own-identity") {
		return fmt.Sprintf("broken:%p", d), nil
	}
	return fmt.Sprintf("broken:%p", d.s), nil
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if d.s.is("check-leaves") {
		_, err := d.Join(ctx, &driver.Ticket{ID: "check:1", Name: "check", Units: 1, Limit: 1, TTL: time.Minute}, true)
		if err != nil {
			return nil, err
		}
	}
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	d.s.mu.Unlock()
	return []driver.Finding{{Topic: "flaw", Detail: "this store is there to be wrong"}}, nil
}
