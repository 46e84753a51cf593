package gocronholdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/gocronholdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// mortal returns the driver of a process that can be killed: once dead is closed, none of
// its requests reaches the store, and each returns when its ctx ends.
func mortal(s *memlock.Store, dead <-chan struct{}) driver.Driver {
	return faults.Passing(memlock.New(s), func(ctx context.Context, _ *faults.Request) error {
		select {
		case <-dead:
			<-ctx.Done()
			return ctx.Err()
		default:
			return nil
		}
	})
}

// mortalMachine is a machine that can be killed.
type mortalMachine struct {
	*machine
	dead chan struct{}
}

func newMortalMachine(t *testing.T, store *memlock.Store, opts func(*holdfast.Client) []gocron.SchedulerOption) *mortalMachine {
	t.Helper()
	dead := make(chan struct{})
	return &mortalMachine{newMachineOf(t, mortal(store, dead), opts), dead}
}

// work runs the job for 10 s, or until the machine is killed. A dead machine runs none.
func (m *mortalMachine) work(r *runs, i int) {
	select {
	case <-m.dead:
		return
	default:
	}
	r.begin(i)
	defer r.end()
	select {
	case <-m.dead:
	case <-time.After(10 * time.Second):
	}
}

// TestKilledMachinesAreFollowed kills the machine that runs the job in the tenth minute,
// and the next one in the twentieth: another one runs the job in the next minute, and
// never do two at once.
func TestKilledMachinesAreFollowed(t *testing.T) {
	plain := func(m *mortalMachine, r *runs, i int) gocron.Task { return gocron.NewTask(func() { m.work(r, i) }) }
	for name, c := range map[string]struct {
		opts func(*holdfast.Client) []gocron.SchedulerOption
		task func(m *mortalMachine, r *runs, i int) gocron.Task
	}{
		"Task": {nil, func(m *mortalMachine, r *runs, i int) gocron.Task {
			return gocronholdfast.Task(m.locks, "report", time.Minute, func(context.Context) error { m.work(r, i); return nil })
		}},
		"Locker": {func(locks *holdfast.Client) []gocron.SchedulerOption {
			l, err := gocronholdfast.NewLocker(locks, time.Minute)
			if err != nil {
				t.Error(err)
			}
			return []gocron.SchedulerOption{gocron.WithDistributedLocker(l)}
		}, plain},
		"Elector": {func(locks *holdfast.Client) []gocron.SchedulerOption {
			e := gocronholdfast.NewElector(context.Background(), locks, "reports") // until its client closes
			return []gocron.SchedulerOption{gocron.WithDistributedElector(e)}
		}, plain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, r, begun := memlock.NewStore(), newRuns(), time.Now()
				const late = 3 * time.Second // of each machine's clock behind that of the one before
				var all []*mortalMachine
				for i := range machines {
					m := newMortalMachine(t, store, c.opts)
					m.every(t, time.Duration(i)*late, c.task(m, r, i))
					all = append(all, m)
					synctest.Wait() // the first one leads first
				}
				for i := range machines - 1 {
					time.Sleep(time.Duration(i+1)*10*time.Minute + time.Duration(i)*late + 5*time.Second - time.Since(begun))
					r.mu.Lock()
					if r.running != 1 {
						t.Errorf("%d machines run the job", r.running)
					}
					r.mu.Unlock()
					close(all[i].dead)
				}
				time.Sleep(30*time.Minute + 30*time.Second - time.Since(begun))
				all[machines-1].end(t)
				for _, m := range all[:machines-1] { // calls of dead machines fail
					_ = m.scheduler.Shutdown()
					_ = m.locks.Close()
				}
				r.check(t, 30)
				if r.by[0] != 10 || r.by[1] != 10 || r.by[2] != 10 {
					t.Errorf("runs by machine: %v", r.by)
				}
			})
		})
	}
}
