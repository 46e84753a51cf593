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
	"github.com/holdfast-go/holdfast/memlock"
)

// mortal is the driver of a process that can be killed: from then on, none of its
// requests reaches the store.
type mortal struct {
	*memlock.Driver
	dead chan struct{}
}

// killed reports whether the process is dead. Then it returns when ctx ends.
func (d mortal) killed(ctx context.Context) bool {
	select {
	case <-d.dead:
		<-ctx.Done()
		return true
	default:
		return false
	}
}

func (d mortal) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if d.killed(ctx) {
		return driver.Status{}, ctx.Err()
	}
	return d.Driver.Join(ctx, t, wait)
}

func (d mortal) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.killed(ctx) {
		return nil, ctx.Err()
	}
	return d.Driver.Renew(ctx, refs)
}

func (d mortal) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.killed(ctx) {
		return nil, ctx.Err()
	}
	return d.Driver.Leave(ctx, refs)
}

func (d mortal) Mark(ctx context.Context, name string) (driver.Mark, error) {
	if d.killed(ctx) {
		return driver.Mark{}, ctx.Err()
	}
	return d.Driver.Mark(ctx, name)
}

func (d mortal) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if d.killed(ctx) {
		return ctx.Err()
	}
	return d.Driver.SetMark(ctx, name, m)
}

// mortalMachine is a machine that can be killed.
type mortalMachine struct {
	*machine
	dead chan struct{}
}

func newMortalMachine(t *testing.T, store *memlock.Store, opts func(*holdfast.Client) []gocron.SchedulerOption) *mortalMachine {
	t.Helper()
	d := mortal{memlock.New(store), make(chan struct{})}
	return &mortalMachine{newMachineOf(t, d, opts), d.dead}
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
