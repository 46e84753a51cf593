package broken

import "github.com/holdfast-go/holdfast/driver"

// unlockAndPush unlocks the store and pushes the grants.
func (d *Driver) unlockAndPush(granted []*ticket, byLeave bool, but string) {
	s := d.store
	type told struct {
		d  *Driver
		id string
		p  driver.Status
	}
	var all []told
	for _, x := range granted {
		p := driver.Status{State: driver.Held, Token: x.token}
		switch {
		case s.hasFlaw("lost-wake-up"), s.hasFlaw("push-on-leave") && !byLeave, s.hasFlaw("first-reader-told") && len(all) > 0:
			continue
		case s.hasFlaw("stale-push"):
			p.Token--
		}
		if x.ID != but {
			all = append(all, told{x.client, x.ID, p})
		}
	}
	if s.pushesFail {
		all = nil
	}
	clients := s.clients
	s.mu.Unlock()
	for _, t := range all {
		t.d.push(t.id, t.p)
	}
	if s.hasFlaw("herd") && len(all) > 0 {
		for _, c := range clients {
			c.push("", driver.Status{})
		}
	}
}

// errPushFailed is the error of a store that cannot tell.
var errPushFailed = driver.Errorf(driver.Refused, "the push cannot be written")

// FailPushes makes pushes fail until restore is called.
func (s *Store) FailPushes() (restore func()) {
	set := func(mute bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pushesFail = mute
	}
	set(true)
	return func() { set(false) }
}
