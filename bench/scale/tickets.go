package scale

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ticketTTL is longer than any part of a run, so that nothing has to be renewed but
// where renewals are measured.
const ticketTTL = time.Hour

// newClientID returns a random UUID, as ids of tickets begin with one.
func newClientID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// ticket returns a fresh ticket for a mutex.
func (r *run) ticket(name string) *driver.Ticket {
	ttl := min(ticketTTL, r.drv.Traits().MaxTTL)
	return &driver.Ticket{ID: fmt.Sprint(r.client, ":", r.ids.Add(1)), Name: name, Units: 1, Limit: 1, TTL: ttl}
}

// cycle locks a free name and releases it, and returns how long the two took.
func (r *run) cycle(ctx context.Context, name string) (us float64, err error) {
	return timed(func() error {
		t := r.ticket(name)
		s, err := r.drv.Join(ctx, t, false)
		if err != nil {
			return err
		}
		if s.State != driver.Held {
			return fmt.Errorf("%s is not free: %v", name, s.State)
		}
		return r.leave(ctx, t, driver.Held)
	})
}

// leave gives a ticket's place up, and expects the state that it had.
func (r *run) leave(ctx context.Context, t *driver.Ticket, was driver.State) error {
	got, err := r.drv.Leave(ctx, []driver.Ref{{Ticket: t, State: was}})
	switch {
	case err != nil:
		return err
	case got[0].Err != nil:
		return got[0].Err
	case got[0].State != was:
		return fmt.Errorf("%s: the ticket that left was %v, not %v", t.Name, got[0].State, was)
	}
	return nil
}

// roundTrip asks for a queue that is not there: the least that a store can be asked
// through the driver.
func (r *run) roundTrip(ctx context.Context) (us float64, err error) {
	return timed(func() error {
		_, err := r.drv.Inspect(ctx, "scale/nobody")
		return err
	})
}

// probe measures lone locks in rounds, between which it takes bare round trips, and
// notes the figures of what grows at n: the median of each round.
func (r *run) probe(ctx context.Context, of string, n int, kinds map[string]func() string) error {
	for range 10 { // warms up
		if _, err := r.cycle(ctx, "scale/warm"); err != nil {
			return err
		}
	}
	type measured struct{ us, cpu []float64 }
	all := map[string]*measured{}
	var trips []float64
	for range rounds {
		var values []float64
		for range cycles {
			us, err := r.roundTrip(ctx)
			if err != nil {
				return err
			}
			values = append(values, us)
		}
		trips = append(trips, median(values))
		for kind, name := range kinds {
			m := all[kind]
			if m == nil {
				m = &measured{}
				all[kind] = m
			}
			values = values[:0]
			before := r.cpu()
			for range cycles {
				us, err := r.cycle(ctx, name())
				if err != nil {
					return err
				}
				values = append(values, us)
			}
			m.us = append(m.us, median(values))
			m.cpu = append(m.cpu, float64(r.cpu()-before)/cycles/float64(time.Microsecond))
		}
	}
	for kind, m := range all {
		r.add(of, "lock and unlock "+kind+", p50", "µs", n, m.us...)
		if r.store.CPU != nil {
			r.add(of, "lock and unlock "+kind+", server CPU", "µs", n, m.cpu...)
		}
	}
	r.add(of, "bare round trip, p50", "µs", n, trips...)
	return nil
}
