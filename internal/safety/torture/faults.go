package torture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// torture carries out the plan. It returns when all faults are healed, after
// the Duration or the end of ctx.
func (r *run) torture(ctx context.Context) error {
	type end struct {
		at   time.Duration
		heal func() error
	}
	var ends []end
	todo := r.plan
	var failed error
	for failed == nil {
		next := r.Duration
		if len(todo) > 0 {
			next = todo[0].At
		}
		for _, e := range ends {
			next = min(next, e.at)
		}
		if !r.sleep(ctx, next) {
			failed = r.unexpectedEnd()
			break
		}
		now := time.Since(r.began)
		ends = slices.DeleteFunc(ends, func(e end) bool {
			if e.at > now || failed != nil {
				return false
			}
			failed = e.heal()
			return true
		})
		if failed == nil {
			failed = r.unexpectedEnd()
		}
		if len(todo) > 0 && todo[0].At <= now && failed == nil {
			s := todo[0]
			todo = todo[1:]
			heal, err := r.disturb(s)
			if err != nil {
				failed = err
				break
			}
			ends = append(ends, end{s.end(), heal})
		}
		if now >= r.Duration {
			break
		}
	}
	for _, e := range ends {
		if err := e.heal(); err != nil && failed == nil {
			failed = err
		}
	}
	if r.Healed != nil {
		r.Healed()
	}
	// Requests that are on their way arrive, now that every server serves
	// again.
	r.healing.Wait()
	return errors.Join(failed, r.unhealed)
}

// sleep waits until a time of the run. It returns false if ctx has ended.
func (r *run) sleep(ctx context.Context, until time.Duration) bool {
	timer := time.NewTimer(until - time.Since(r.began))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// unexpectedEnd returns an error if a client has ended that was not killed.
func (r *run) unexpectedEnd() error {
	for _, x := range r.procs {
		if x.killed {
			continue
		}
		select {
		case <-x.gone:
			return fmt.Errorf("torture: client %d ended by itself: %s", x.p, strings.TrimSpace(x.broke+" "+x.said.String()))
		default:
		}
	}
	return nil
}

// fault writes the begin or the end of a fault to the history.
func (r *run) fault(what checker.What, s Step, text string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := checker.Event{T: checker.Now(), What: what, P: s.Target, Text: s.Kind, Name: text}
	r.addLocked(e)
	if what == checker.Fault {
		r.active = append(r.active, s.Kind)
	} else if i := slices.Index(r.active, s.Kind); i >= 0 {
		r.active = slices.Delete(r.active, i, i+1)
	}
	return e.T
}

// disturb begins a step, and returns a function that ends it.
func (r *run) disturb(s Step) (heal func() error, err error) {
	at := r.fault(checker.Fault, s, s.Plan)
	if f := r.Config.fault(s.Kind); f != nil {
		return r.beginOwn(s, f)
	}
	x := r.procs[s.Target]
	switch s.Kind {
	case Pause:
		x.stop()
		return func() error {
			x.resume()
			r.fault(checker.Heal, s, "")
			return nil
		}, nil
	case Kill:
		r.mu.Lock()
		x.killed, x.killedAt = true, at
		r.mu.Unlock()
		_ = x.cmd.Process.Signal(syscall.SIGKILL)
		<-x.gone
		return func() error {
			y, err := r.start(x.p, x.k+1, false)
			if err != nil {
				return err
			}
			r.procs[x.p] = y
			r.fault(checker.Heal, s, "")
			return nil
		}, nil
	}
	x.send(order{Do: "disturb", Plan: s.Plan})
	return func() error {
		x.send(order{Do: "heal"})
		r.healing.Go(func() { r.heal(x, s) })
		return nil
	}, nil
}

// heal waits until a fault of requests is over. Its requests may have to wait
// for a stopped server, so nothing else waits for them.
func (r *run) heal(x *process, s Step) {
	limit := time.NewTimer(r.maxWait())
	defer limit.Stop()
	var n int64
	var err error
	select {
	case n = <-x.healed:
	case <-x.gone:
	case <-limit.C:
		err = fmt.Errorf("torture: client %d did not end a fault of requests within %v", x.p, r.maxWait())
	}
	r.fault(checker.Heal, s, "")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.met += n
	r.unhealed = errors.Join(r.unhealed, err)
}
