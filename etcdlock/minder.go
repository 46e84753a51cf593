package etcdlock

import (
	"container/heap"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// ownDelay is how long a place has to hold until its own key is watched,
	// and waitDelay how long it has to wait until its predecessor's is: what
	// comes and goes quickly is not watched at all. Waiting may take longer: who
	// leaves without a word has mostly died, and took a lease's time for that;
	// and a foreign predecessor is watched at once.
	ownDelay  = 200 * time.Millisecond
	waitDelay = time.Second
	// maxOwn bounds the own keys watched; the rest is read with each Renew.
	maxOwn = 256
	// idleLife is for how many of its TTLs a session is kept without a place.
	idleLife = 20
)

// minder is the goroutine that does what nobody asks for: it keeps sessions
// alive, drops places that nobody renews, and watches what lasts longer. That
// is what wakes a waiter when somebody goes without a word: a client that died,
// or one that does not speak our layout.
type minder struct {
	d    *Driver
	wake chan struct{}
	// heap has the places by when to look at them; guarded by Driver.mu.
	heap placeHeap
	next time.Time // when run looks again
	away bool      // bring is under way; guarded by Driver.mu
}

func (m *minder) start(d *Driver) {
	m.d = d
	m.wake = make(chan struct{}, 1)
	d.goes(m.run)
}

func (m *minder) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// look looks at a place after a delay, or when its time is over if that is
// earlier. The caller has Driver.mu.
func (m *minder) look(p *place, delay time.Duration) {
	at := time.Now().Add(delay)
	if p.due.Before(at) {
		at = p.due
	}
	m.schedule(p, at)
}

func (m *minder) schedule(p *place, at time.Time) {
	p.at = at
	if p.heapAt == 0 {
		heap.Push(&m.heap, p)
	} else {
		heap.Fix(&m.heap, p.heapAt-1)
	}
	if m.next.IsZero() || at.Before(m.next) {
		m.next = at
		m.kick()
	}
}

// drop forgets a place. The caller has Driver.mu.
func (m *minder) drop(p *place) {
	if p.heapAt > 0 {
		heap.Remove(&m.heap, p.heapAt-1)
	}
}

func (m *minder) run() {
	life := m.d.life
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for life.Err() == nil {
		// Requests may go unanswered for as long as they have time. Sessions have
		// to be kept alive meanwhile.
		if over, look := m.due(); len(over)+len(look) > 0 {
			m.d.goes(func() { m.bring(over, look) })
		}
		at := m.tend()
		timer.Reset(max(0, time.Until(at)))
		select {
		case <-timer.C:
		case <-m.wake:
		case <-life.Done():
		}
	}
}

// due takes what is to be done off the heap: places whose time is over, and
// places to look at; nothing while bring is under way.
func (m *minder) due() (over, look []*place) {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.away {
		return nil, nil
	}
	now := time.Now()
	for len(m.heap) > 0 && len(look) < maxReads && len(over) < maxReads {
		p := m.heap[0]
		if p.at.After(now) {
			break
		}
		if !p.due.After(now) {
			p.late = true
			over = append(over, p)
			m.schedule(p, now.Add(p.t.TTL/10+50*time.Millisecond)) // should that fail
			continue
		}
		m.schedule(p, p.due)
		switch {
		case p.ownRev() == 0 || p.watch != nil || d.moved == nil || p.state == driver.Held && d.watched >= maxOwn:
		case p.state == driver.Waiting && p.before != "":
			// From the revision of its Join on: that is served late, by a
			// tick, but costs no other request.
			p.watch = d.watcher.add(p.before, p.rev+1, func(e event) { d.predEvent(p, e) })
			p.before = ""
		default:
			look = append(look, p)
		}
	}
	m.away = len(over)+len(look) > 0
	return over, look
}

// bring does what due has found, on a goroutine of its own.
func (m *minder) bring(over, look []*place) {
	d := m.d
	defer func() {
		d.mu.Lock()
		m.away = false
		d.mu.Unlock()
		m.kick()
	}()
	if len(over) > 0 {
		refs := make([]driver.Ref, len(over))
		for i, p := range over {
			refs[i] = driver.Ref{Ticket: p.t, State: driver.Waiting}
		}
		ctx, cancel := context.WithTimeout(d.life, max(over[0].t.TTL/3, time.Second))
		_, _ = d.Leave(ctx, refs)
		cancel()
	}
	for len(look) > 0 {
		ctx, cancel := context.WithTimeout(d.life, max(look[0].t.TTL/6, 500*time.Millisecond))
		n, seen, err := d.look(ctx, look)
		cancel()
		if err != nil {
			d.mu.Lock()
			for _, p := range look {
				if p.state != driver.Gone {
					m.look(p, waitDelay)
				}
			}
			d.mu.Unlock()
			return
		}
		for i, s := range seen {
			d.settle(look[i], s)
		}
		look = look[n:]
	}
}

// settle acts on what the minder has seen of a place: it tells, or watches.
func (d *Driver) settle(p *place, s seen) {
	d.mu.Lock()
	if p.state == driver.Gone || p.late {
		d.mu.Unlock()
		return
	}
	switch {
	case s.err != nil:
		d.minder.look(p, waitDelay)
	case s.state == driver.Gone:
		d.mu.Unlock()
		d.goneNow(p)
		return
	case s.state == driver.Held:
		if p.watch == nil && d.watched < maxOwn {
			d.watched++
			own, rev := p.ownKey(), p.ownRev()
			p.watch = d.watcher.add(own, s.rev+1, func(e event) { d.ownEvent(p, rev, e) })
		}
		d.mu.Unlock()
		if s.news {
			d.push(p.t.ID, driver.Place{State: driver.Held, Token: uint64(p.rev)})
		}
		return
	case p.state == driver.Waiting && p.watch == nil && s.pred != nil:
		p.watch = d.watcher.add(s.pred.key, s.rev+1, func(e event) { d.predEvent(p, e) })
	}
	d.mu.Unlock()
}

// ownEvent takes what happened to the key of a place that holds (F69).
func (d *Driver) ownEvent(p *place, rev int64, e event) {
	switch {
	case e.gap:
		d.mu.Lock()
		if p.state == driver.Held {
			d.unwatch(p)
			d.minder.look(p, 0)
		}
		d.mu.Unlock()
	case e.deleted:
		d.goneNow(p)
	}
}

// predEvent takes what happened to the key before a place that waits. The one
// who left may have told; then the place holds already, or will at once.
func (d *Driver) predEvent(p *place, e event) {
	if !e.gap && !e.deleted {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.state == driver.Waiting {
		d.unwatch(p)
		d.minder.look(p, 5*time.Millisecond)
	}
}

// afterGap: pushes may have been lost. The core asks for all that wait; what
// the driver knows of sessions is asked for again too.
func (d *Driver) afterGap() {
	d.mu.Lock()
	for _, s := range d.leased {
		if !s.over && len(s.places) > 0 {
			s.sent = s.sent.Add(-s.ttl) // not fresh any more
			d.askBeat(s)
		}
	}
	d.mu.Unlock()
	d.push("", driver.Place{})
}

// tend keeps sessions alive, gives back those that have long been without a
// place, and says when to look again.
func (m *minder) tend() time.Time {
	d := m.d
	d.mu.Lock()
	defer d.mu.Unlock()
	at := time.Now().Add(time.Hour)
	if len(m.heap) > 0 && !m.away {
		at = m.heap[0].at
	}
	for _, s := range d.leased {
		if len(s.places) == 0 && !s.owned && since(s.used) > idleLife*s.ttl {
			d.dropSession(s)
			s.over = true
			d.busy.Go(func() {
				ctx, cancel := context.WithTimeout(d.life, 2*time.Second)
				defer cancel()
				d.revoke(ctx, s.id)
			})
			continue
		}
		every := s.granted / 3
		if since(s.sent) >= every {
			d.askBeat(s)
			if next := time.Now().Add(every / 4); next.Before(at) {
				at = next
			}
		} else if next := s.sent.Add(every); next.Before(at) {
			at = next
		}
	}
	m.next = at
	return at
}

// placeHeap orders places by when they are looked at.
type placeHeap []*place

func (h placeHeap) Len() int           { return len(h) }
func (h placeHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h placeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i+1, j+1
}
func (h *placeHeap) Push(x any) {
	p := x.(*place)
	*h = append(*h, p)
	p.heapAt = len(*h)
}
func (h *placeHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	p.heapAt = 0
	return p
}
