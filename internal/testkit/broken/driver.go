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
	store         *Store
	user          *User         // nil may do everything
	done          chan struct{} // closed by Close, or by the end of the process's need for a leak
	background    sync.WaitGroup
	closed        atomic.Bool
	joined        atomic.Bool
	ignoresPushes atomic.Bool
	pushed        atomic.Int64
	unheard       sync.Map // ids of tickets whose Leave had no answer

	mu     sync.Mutex
	ctx    context.Context // of Watch
	notify func(string, driver.Status)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New returns a client of s.
func New(s *Store) *Driver {
	d := &Driver{store: s, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, d)
	return d
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits {
	t := driver.Traits{
		Scheme: "broken", Fencing: true, Shared: true, Owner: true, Fair: true, Push: true, Marks: true, SurvivesRestart: true,
		MinTTL: 10 * time.Millisecond, MaxTTL: 10 * 365 * 24 * time.Hour,
	}
	if d.store.hasFlaw("traits-change") && d.joined.Load() {
		t.MinTTL++
	}
	return t
}

// lockStore locks the store, once it answers.
func (d *Driver) lockStore(ctx context.Context) error {
	s := d.store
	if d.closed.Load() && !s.hasFlaw("closed-works") {
		return driver.ErrClosed
	}
	if !s.hasFlaw("context-ignored") {
		if err := driver.Before(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	for s.paused != nil {
		ch := s.paused
		s.mu.Unlock()
		end := ctx.Done()
		if s.hasFlaw("hangs") {
			slow, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			end = slow.Done()
		}
		select {
		case <-ch:
		case <-end:
			if s.hasFlaw("requests-linger") {
				go func() { <-ch }()
			}
			return driver.Wrap(driver.Unknown, errors.New("the store is silent"))
		}
		s.mu.Lock()
	}
	return nil
}

func (d *Driver) push(id string, p driver.Status) {
	d.mu.Lock()
	ctx, notify := d.ctx, d.notify
	d.mu.Unlock()
	on := notify != nil && !d.ignoresPushes.Load()
	if d.store.hasFlaw("deaf-with-age") && d.pushed.Add(1) > 200 {
		return
	}
	if on && (d.store.hasFlaw("pushes-on") || ctx.Err() == nil && !d.closed.Load()) {
		notify(id, p)
	}
}

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if _, left := d.unheard.Load(t.ID); left && d.store.hasFlaw("unheard-is-left") {
		return driver.Status{State: driver.Gone}, nil
	}
	if err := d.lockStore(ctx); err != nil {
		return driver.Status{}, err
	}
	d.joined.Store(true)
	if wait && d.withoutWatch() && d.store.hasFlaw("unheard-refused") {
		d.store.mu.Unlock()
		return driver.Status{}, driver.Errorf(driver.Unavailable, "pushes do not flow")
	}
	if err := d.checkRights(rightTake, rightKeep); err != nil {
		if d.store.hasFlaw("refused-in-part") && d.checkRights(rightTake) == nil {
			l := d.store.queueOf(t.Name)
			if l.limit = t.Limit; l.find(t.ID) == nil {
				l.tickets = append(l.tickets, &ticket{Ticket: *t, place: &place{held: true, owner: d.store.ownerKey(t), units: t.Units}, deadline: 1 << 62, client: d})
			}
		}
		if d.store.hasFlaw("refused-takes") {
			_, _, _ = d.store.join(d, t, wait)
		}
		d.store.mu.Unlock()
		return driver.Status{}, err
	}
	p, granted, err := d.store.join(d, t, wait)
	d.unlockAndPush(granted, false, t.ID)
	return p, err
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	places := make([]driver.Status, len(refs))
	if err := d.lockStore(ctx); err != nil {
		if d.store.hasFlaw("gone-by-clock") {
			for i := range places {
				places[i].State = driver.Gone
			}
			return places, nil
		}
		return nil, err
	}
	var granted []*ticket
	for i := range refs {
		if err := d.checkRights(rightKeep); err != nil {
			places[i] = driver.Status{Err: err}
			if x := d.store.queueOf(refs[i].Name).find(refs[i].ID); x != nil && d.store.hasFlaw("withdrawn-stays") {
				x.deadline = 1 << 62
			}
			continue
		}
		if d.store.hasFlaw("batch-cut") && i >= 100 {
			places[i] = driver.Status{State: driver.Gone}
			continue
		}
		p, more := d.store.renew(d, &refs[i])
		places[i] = p
		granted = append(granted, more...)
	}
	but := ""
	if len(refs) == 1 {
		but = refs[0].ID
	}
	beginsAnew := d.store.hasFlaw("slow-is-silent") && d.store.lockedRows > 0
	d.unlockAndPush(granted, false, but)
	if beginsAnew {
		d.push("", driver.Status{})
	}
	if d.store.hasFlaw("mixed-up") {
		slices.Reverse(places)
	}
	return places, nil
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.store.hasFlaw("unsure-early") && len(refs) == 1 && refs[0].JoinPending {
		return []driver.Status{{State: driver.Gone}}, nil
	}
	if d.store.hasFlaw("leaves-late") && len(refs) == 1 {
		d.background.Go(func() {
			time.Sleep(5 * time.Millisecond)
			d.store.mu.Lock()
			_, granted := d.store.leave(&driver.Ref{Ticket: refs[0].Ticket})
			d.unlockAndPush(granted, true, "")
		})
		return []driver.Status{{State: driver.Held}}, nil
	}
	if err := d.lockStore(ctx); err != nil {
		for i := range refs {
			d.unheard.Store(refs[i].ID, true)
		}
		return nil, err
	}
	places := make([]driver.Status, len(refs))
	if d.store.pushesFail && d.store.hasFlaw("push-must") {
		d.store.mu.Unlock()
		return nil, errPushFailed
	}
	var granted []*ticket
	for i := range refs {
		if err := d.checkRights(rightLeave); err != nil {
			places[i] = driver.Status{Err: err}
			continue
		}
		p, more := d.store.leave(&refs[i])
		places[i] = p
		granted = append(granted, more...)
		if d.store.hasFlaw("successor-stays") && d.checkRights(rightKeep) != nil {
			for _, x := range more {
				x.deadline = 1 << 62
			}
		}
	}
	d.unlockAndPush(granted, true, "")
	if d.store.hasFlaw("leave-mixed-up") {
		slices.Reverse(places)
	}
	return places, nil
}

// Watch implements [driver.Driver].
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	if err := d.lockStore(ctx); err != nil {
		return err
	}
	defer d.store.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.notify = ctx, notify
	return nil
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := d.lockStore(ctx); err != nil {
		return driver.Queue{}, err
	}
	l := d.store.queueOf(name)
	granted := d.store.advance(l)
	defer d.unlockAndPush(granted, false, "")
	line := driver.Queue{Name: name, Token: l.lastToken}
	if len(l.tickets) == 0 {
		if d.store.hasFlaw("inspect-must") {
			return line, errors.New("no such line")
		}
		return line, nil
	}
	line.Limit = l.limit
	for _, x := range l.tickets {
		if d.store.hasFlaw("inspect-renews") {
			x.deadline = d.store.now() + d.store.keepFor(x.TTL)
		}
		e := driver.Entry{ID: x.ID, Owner: x.Owner, State: driver.Waiting, Units: x.units, Token: x.token, Left: x.deadline - d.store.now(), Meta: x.Meta}
		if x.held {
			e.State = driver.Held
		}
		if d.store.hasFlaw("meta-cut") {
			e.Meta, _, _ = strings.Cut(e.Meta, "\x00")
		}
		line.Tickets = append(line.Tickets, e)
	}
	if d.store.hasFlaw("inspect-unordered") {
		slices.Reverse(line.Tickets)
	}
	return line, nil
}

// Names implements [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.lockStore(ctx); err != nil {
			yield("", err)
			return
		}
		var names []string
		var granted []*ticket
		for name, l := range d.store.queues {
			granted = append(granted, d.store.advance(l)...)
			match := strings.HasPrefix(name, prefix)
			if d.store.hasFlaw("names-glob") {
				match, _ = path.Match(prefix+"*", name)
			}
			if len(l.tickets) > 0 && match {
				names = append(names, name)
			}
		}
		if d.store.hasFlaw("mark-listed") {
			for name := range d.store.marks {
				names = append(names, name)
			}
		}
		d.unlockAndPush(granted, false, "")
		if d.store.hasFlaw("names-twice") {
			names = append(names, names...)
		}
		if d.store.hasFlaw("names-cut") {
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
	if err := d.lockStore(ctx); err != nil {
		return err
	}
	s := d.store
	l := s.queueOf(name)
	granted := s.advance(l)
	x := l.find(ticketID)
	if x == nil || s.hasFlaw("break-holders") && !x.held {
		d.unlockAndPush(granted, true, "")
		if s.hasFlaw("break-says-nil") {
			return nil
		}
		return driver.ErrNoTicket
	}
	if !s.hasFlaw("break-not") {
		s.remove(l, x)
	}
	if i := slices.IndexFunc(l.tickets, func(y *ticket) bool { return !y.held }); s.hasFlaw("break-turns-round") && x.held && i >= 0 && i+1 < len(l.tickets) {
		l.tickets[i], l.tickets[i+1] = l.tickets[i+1], l.tickets[i]
	}
	if s.hasFlaw("break-owner") {
		l.tickets = slices.DeleteFunc(l.tickets, func(y *ticket) bool { return y.place == x.place })
	}
	if s.hasFlaw("broken-forgotten") {
		delete(s.goneIDs, x.ID)
	}
	granted = append(granted, s.advance(l)...)
	d.unlockAndPush(granted, true, "")
	if !s.hasFlaw("break-untold") {
		x.client.push(x.ID, driver.Status{State: driver.Gone})
	}
	return nil
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	if d.store.hasFlaw("leaks") {
		go func() { time.Sleep(time.Hour) }()
	}
	if silent := silenceOf(d.store); silent != nil {
		if d.store.hasFlaw("close-forgets") {
			go func() { <-silent }()
		}
		if d.store.hasFlaw("close-waits") {
			select {
			case <-silent:
			case <-time.After(15 * time.Second):
			}
		}
	}
	if d.store.hasFlaw("close-leaves") {
		d.store.mu.Lock()
		var granted []*ticket
		for _, l := range d.store.queues {
			l.tickets = slices.DeleteFunc(l.tickets, func(x *ticket) bool { return x.client == d })
			granted = append(granted, d.store.advance(l)...)
		}
		d.unlockAndPush(granted, true, "")
	}
	close(d.done)
	d.background.Wait()
	return nil
}

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.lockStore(ctx); err != nil {
		return "", err
	}
	d.store.mu.Unlock()
	if d.store.hasFlaw("own-identity") {
		return fmt.Sprintf("broken:%p", d), nil
	}
	return fmt.Sprintf("broken:%p", d.store), nil
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if d.store.hasFlaw("check-leaves") {
		_, err := d.Join(ctx, &driver.Ticket{ID: "check:1", Name: "check", Units: 1, Limit: 1, TTL: time.Minute}, true)
		if err != nil {
			return nil, err
		}
	}
	if err := d.lockStore(ctx); err != nil {
		return nil, err
	}
	d.store.mu.Unlock()
	return d.findings(), nil
}
