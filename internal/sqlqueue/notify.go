package sqlqueue

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// noPushPrefix begins the address of a client without pushes. No other client
// notifies such an address; the client itself needs it to recognise its own
// grants.
const noPushPrefix = "-"

// address returns the address to which pushes for this client are sent.
func (s *Tables) address() string {
	if s.PushesArrive.Load() {
		return s.Name
	}
	return noPushPrefix + s.Name
}

// Others returns the pushes that go to other clients, apart from clients
// without pushes.
func (s *Tables) Others(pushes []Push) []Push {
	var out []Push
	for _, p := range pushes {
		if p.Wake != s.Name && !strings.HasPrefix(p.Wake, noPushPrefix) {
			out = append(out, p)
		}
	}
	return out
}

// A client without pushes rechecks the n-th ticket of a queue after n ×
// PaceFirst, but at least every PaceLast.
const (
	PaceFirst = 25 * time.Millisecond
	PaceLast  = time.Second
)

// limitRecheck shortens the Recheck of a waiting ticket whose grant is not
// pushed to this client.
func (s *Tables) limitRecheck(t *driver.Ticket, p driver.Status) driver.Status {
	if p.State != driver.Waiting {
		if p.Err == nil {
			s.waiters.Delete(t.ID)
		}
		return p
	}
	if w, ok := s.waiters.Load(t.ID); s.PushesArrive.Load() && !(ok && w.(waiter).noPush) {
		return p
	}
	pace := min(PaceLast, PaceFirst*time.Duration(max(1, min(p.Ahead, 1000))))
	if p.Recheck == 0 || p.Recheck > pace {
		p.Recheck = pace
	}
	return p
}

// Watch stores the function of [driver.Driver.Watch]. It refuses a second one.
func (s *Tables) Watch(moved func(string, driver.Status)) error {
	if !s.notify.CompareAndSwap(nil, &moved) {
		return driver.Errorf(driver.Refused, "Watch was called before")
	}
	return nil
}

// Unwatch removes that function: no push arrives any more.
func (s *Tables) Unwatch() {
	s.PushesArrive.Store(false)
	s.notify.Store(nil)
}

// Notify passes a push on to the core. An empty id says that pushes may have
// been lost.
func (s *Tables) Notify(id string, p driver.Status) {
	if id != "" {
		s.waiters.Delete(id)
	}
	if moved := s.notify.Load(); moved != nil {
		(*moved)(id, p)
	}
}

// deliver delivers the pushes of a request that are for this client itself; the
// server notifies the others. If it is unknown whether the request took effect
// on these queues, it is also unknown which of this client's tickets it granted
// there. If any of them waits, the core renews.
func (s *Tables) deliver(pushes []Push, err error, queues ...string) {
	for _, p := range pushes {
		if strings.TrimPrefix(p.Wake, noPushPrefix) == s.Name {
			s.Notify(p.ID, p.Status)
		}
	}
	if err != nil && driver.ClassOf(err) == driver.Unknown && s.waitsIn(queues) {
		s.Notify("", driver.Status{})
	}
}

// waitsIn reports whether a ticket of this client waits in one of these queues.
func (s *Tables) waitsIn(queues []string) (waits bool) {
	s.waiters.Range(func(_, w any) bool {
		waits = slices.Contains(queues, w.(waiter).name)
		return !waits
	})
	return waits
}

// waiter is a waiting ticket of this client.
type waiter struct {
	name   string
	noPush bool // its address is one that nobody notifies
}
