package scale

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// pushTime bounds the wait for a grant.
const pushTime = 30 * time.Second

// renewBatch is how many tickets one request renews where renewals are measured.
const renewBatch = 100

// waiters measures one name with a holder and n waiters.
func (r *run) waiters(ctx context.Context) (err error) {
	const of, name = "waiters", "scale/queue"
	granted := make(chan string, 1024)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pushes := r.drv.Traits().Push || r.drv.Traits().PushLocal
	if pushes {
		err := r.drv.Watch(ctx, func(id string, s driver.Status) {
			if s.State == driver.Held {
				granted <- id
			}
		})
		if err != nil {
			return err
		}
	}
	empty := r.bytes()
	queue := []*driver.Ticket{r.ticket(name)} // the holder first
	if s, err := r.drv.Join(ctx, queue[0], true); err != nil || s.State != driver.Held {
		return errors.Join(err, fmt.Errorf("the first ticket is %v", s.State))
	}
	byID := map[string]*driver.Ticket{queue[0].ID: queue[0]}
	holder := queue[0]
	defer func() { // leaves nothing behind
		err = errors.Join(err, r.empty(context.WithoutCancel(ctx), byID, holder))
	}()
	for _, n := range r.Waiters {
		made := make([]*driver.Ticket, n+1-len(byID))
		for i := range made {
			made[i] = r.ticket(name)
			byID[made[i].ID] = made[i]
		}
		err := r.each(ctx, 0, len(made), func(ctx context.Context, i int) error {
			s, err := r.drv.Join(ctx, made[i], true)
			if err == nil && s.State != driver.Waiting {
				err = fmt.Errorf("a ticket behind the holder is %v", s.State)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%d waiters: %w", n, err)
		}
		if kept := r.bytes(); kept > 0 {
			r.add(of, "kept for each", "bytes", n, (kept-empty)/float64(n))
		}
		if pushes {
			if err := r.handOffs(ctx, n, name, &holder, byID, granted); err != nil {
				return err
			}
		}
		if err := r.ends(ctx, n, name); err != nil {
			return err
		}
		if err := r.renewals(ctx, of, n, byID, holder); err != nil {
			return err
		}
		if err := r.probe(ctx, of, n, map[string]func() string{"of another name": func() string { return "scale/other" }}); err != nil {
			return err
		}
	}
	return nil
}

// handOffs measures how long a release takes until the next waiter's grant is heard.
// For each ticket that leaves another one takes a place at the end.
func (r *run) handOffs(ctx context.Context, n int, name string, holder **driver.Ticket, byID map[string]*driver.Ticket, granted <-chan string) error {
	var all, cpu []float64
	hand := min(cycles/2, n)
	for range rounds {
		var values []float64
		var used time.Duration
		for range hand {
			before := r.cpu()
			began := time.Now()
			if err := r.leave(ctx, *holder, driver.Held); err != nil {
				return fmt.Errorf("release before %d waiters: %w", n, err)
			}
			delete(byID, (*holder).ID)
			select {
			case id := <-granted:
				values = append(values, float64(time.Since(began))/float64(time.Microsecond))
				used += r.cpu() - before
				if *holder = byID[id]; *holder == nil {
					return fmt.Errorf("a stranger %s was granted", id)
				}
			case <-time.After(pushTime):
				return fmt.Errorf("no grant was heard in %v", pushTime)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			t := r.ticket(name)
			if _, err := r.drv.Join(ctx, t, true); err != nil {
				return err
			}
			byID[t.ID] = t
		}
		all = append(all, median(values))
		cpu = append(cpu, float64(used)/float64(hand)/float64(time.Microsecond))
	}
	r.add("waiters", "hand-off, release to grant heard, p50", "µs", n, all...)
	if r.store.CPU != nil {
		r.add("waiters", "hand-off, server CPU", "µs", n, cpu...)
	}
	return nil
}

// ends measures a place at the end of the queue, which is taken and given up.
func (r *run) ends(ctx context.Context, n int, name string) error {
	var all []float64
	for range rounds {
		var values []float64
		for range cycles / 2 {
			us, err := timed(func() error {
				t := r.ticket(name)
				if _, err := r.drv.Join(ctx, t, true); err != nil {
					return err
				}
				return r.leave(ctx, t, driver.Waiting)
			})
			if err != nil {
				return fmt.Errorf("a place behind %d waiters: %w", n, err)
			}
			values = append(values, us)
		}
		all = append(all, median(values))
	}
	r.add("waiters", "join the end of the queue and leave, p50", "µs", n, all...)
	return nil
}

// renewals measures how long it takes to renew all tickets once.
func (r *run) renewals(ctx context.Context, of string, n int, byID map[string]*driver.Ticket, holder *driver.Ticket) error {
	var refs []driver.Ref
	for _, t := range byID {
		state := driver.Waiting
		if t == holder {
			state = driver.Held
		}
		refs = append(refs, driver.Ref{Ticket: t, State: state})
	}
	var took, cpu, alone, aloneCPU []float64
	for range rounds {
		var values []float64
		before := r.cpu()
		for range cycles / 2 {
			us, err := timed(func() error { return r.renew(ctx, refs[rand.IntN(len(refs)):][:1]) })
			if err != nil {
				return fmt.Errorf("renewal of one of %d: %w", n, err)
			}
			values = append(values, us)
		}
		alone = append(alone, median(values))
		aloneCPU = append(aloneCPU, float64(r.cpu()-before)/(cycles/2)/float64(time.Microsecond))
		before = r.cpu()
		us, err := timed(func() error {
			for some := range slices.Chunk(refs, renewBatch) {
				if err := r.renew(ctx, some); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("renewal of %d: %w", n, err)
		}
		took = append(took, us/float64(len(refs)))
		cpu = append(cpu, float64(r.cpu()-before)/float64(len(refs))/float64(time.Microsecond))
	}
	r.add(of, "renewal of one, p50", "µs", n, alone...)
	r.add(of, "renewal of each, 100 in a request", "µs", n, took...)
	if r.store.CPU != nil {
		r.add(of, "renewal of one, server CPU", "µs", n, aloneCPU...)
		r.add(of, "renewal of each, 100 in a request, server CPU", "µs", n, cpu...)
	}
	return nil
}

func (r *run) renew(ctx context.Context, refs []driver.Ref) error {
	got, err := r.drv.Renew(ctx, refs)
	if err != nil {
		return err
	}
	for i, s := range got {
		if s.Err != nil {
			return s.Err
		}
		if s.State != refs[i].State {
			return fmt.Errorf("a ticket is %v, not %v", s.State, refs[i].State)
		}
	}
	return nil
}

// empty gives all places of a queue up, those of waiters first.
func (r *run) empty(ctx context.Context, byID map[string]*driver.Ticket, holder *driver.Ticket) error {
	var refs []driver.Ref
	for _, t := range byID {
		if t != holder {
			refs = append(refs, driver.Ref{Ticket: t, State: driver.Waiting, JoinPending: false})
		}
	}
	for some := range slices.Chunk(append(refs, driver.Ref{Ticket: holder, State: driver.Held}), renewBatch) {
		if _, err := r.drv.Leave(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
