package gocronholdfast_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/gocronholdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const machines = 3

// runs counts the runs of a job by the minute in which they began, and those that
// overlapped.
type runs struct {
	mu      sync.Mutex
	began   map[time.Time]int
	by      map[int]int // by machine
	running int
	overlap bool
}

func newRuns() *runs { return &runs{began: map[time.Time]int{}, by: map[int]int{}} }

func (r *runs) begin(machine int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began[holdfast.Slot(time.Now(), time.Minute)]++
	r.by[machine]++
	r.running++
	r.overlap = r.overlap || r.running > 1
}

func (r *runs) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
}

// check wants one run in each of n minutes, and no overlap.
func (r *runs) check(t *testing.T, n int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, count := range r.began {
		if count != 1 {
			t.Errorf("%s: %d runs", at.Format(time.TimeOnly), count)
		}
	}
	if len(r.began) != n || r.overlap {
		t.Errorf("%d minutes with a run, want %d; overlap: %v", len(r.began), n, r.overlap)
	}
}

// machine is a process with a scheduler.
type machine struct {
	locks     *holdfast.Client
	scheduler gocron.Scheduler
}

func newMachine(t *testing.T, store *memlock.Store, opts func(*holdfast.Client) []gocron.SchedulerOption) *machine {
	t.Helper()
	return newMachineOf(t, memlock.New(store), opts)
}

// newMachineOf returns a machine whose requests go through a driver.
func newMachineOf(t *testing.T, d holdfast.Driver, opts func(*holdfast.Client) []gocron.SchedulerOption) *machine {
	t.Helper()
	locks, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{locks: locks}
	var with []gocron.SchedulerOption
	if opts != nil {
		with = opts(locks)
	}
	if m.scheduler, err = gocron.NewScheduler(with...); err != nil {
		t.Fatal(err)
	}
	return m
}

// every runs a task each minute, late by so much.
func (m *machine) every(t *testing.T, late time.Duration, task gocron.Task, opts ...gocron.JobOption) {
	t.Helper()
	first := time.Now().Truncate(time.Minute).Add(time.Minute + late)
	opts = append(opts, gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(first)))
	if _, err := m.scheduler.NewJob(gocron.DurationJob(time.Minute), task, opts...); err != nil {
		t.Fatal(err)
	}
	m.scheduler.Start()
}

func (m *machine) end(t *testing.T) {
	t.Helper()
	if err := m.scheduler.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := m.locks.Close(); err != nil {
		t.Error(err)
	}
}

// TestTaskRunsOnceForEachSlot has three machines whose clocks differ by seconds,
// with jobs shorter and longer than that. One of them ends halfway.
func TestTaskRunsOnceForEachSlot(t *testing.T) {
	for _, work := range []time.Duration{time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store, r := memlock.NewStore(), newRuns()
			var all []*machine
			for i := range machines {
				m := newMachine(t, store, nil)
				m.every(t, time.Duration(i)*4*time.Second, gocronholdfast.Task(m.locks, "report", time.Minute, func(ctx context.Context) error {
					r.begin(i)
					defer r.end()
					time.Sleep(work)
					return ctx.Err()
				}))
				all = append(all, m)
			}
			time.Sleep(30*time.Minute + 30*time.Second)
			all[0].end(t) // it is the first in each minute
			time.Sleep(30 * time.Minute)
			for _, m := range all[1:] {
				m.end(t)
			}
			r.check(t, 60)
			if r.by[0] != 30 || r.by[1] != 30 {
				t.Errorf("runs by machine: %v", r.by)
			}
		})
	}
}

// TestTaskEndsWithLostLock breaks the lock of a running task: its context ends, the
// job's listener hears of the loss, and the next slot runs as ever.
func TestTaskEndsWithLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore()
		m := newMachine(t, store, nil)
		defer m.end(t)
		var mu sync.Mutex
		var ends, heard []error
		listen := gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, err)
		}))
		m.every(t, 0, gocronholdfast.Task(m.locks, "report", time.Minute, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, context.Cause(ctx))
			return nil
		}), listen)
		time.Sleep(65 * time.Second)
		seen, err := m.locks.Inspect(t.Context(), "report")
		if err != nil || len(seen.Holders) != 1 {
			t.Fatalf("%+v %v", seen, err)
		}
		if err := m.locks.Break(t.Context(), "report", seen.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute + 30*time.Second)
		mu.Lock()
		defer mu.Unlock()
		if len(ends) != 2 || !errors.Is(ends[0], holdfast.ErrLost) || ends[1] != nil {
			t.Errorf("contexts ended with %v", ends)
		}
		if len(heard) != 1 || !errors.Is(heard[0], holdfast.ErrLost) {
			t.Errorf("the listener heard %v", heard)
		}
	})
}

// TestLockerRunsOnceForEachSlot does as the test of Task, with the jobs of a
// scheduler that has a Locker.
func TestLockerRunsOnceForEachSlot(t *testing.T) {
	for _, work := range []time.Duration{time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store, r := memlock.NewStore(), newRuns()
			var mu sync.Mutex
			refused := map[string]int{}
			listen := gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
				mu.Lock()
				defer mu.Unlock()
				for _, known := range []error{gocronholdfast.ErrDone, holdfast.ErrHeld} {
					if errors.Is(err, known) {
						refused[known.Error()]++
						return
					}
				}
				t.Error(err)
			}))
			var all []*machine
			for i := range machines {
				m := newMachine(t, store, func(locks *holdfast.Client) []gocron.SchedulerOption {
					l, err := gocronholdfast.NewLocker(locks, time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					return []gocron.SchedulerOption{gocron.WithDistributedLocker(l)}
				})
				m.every(t, time.Duration(i)*4*time.Second, gocron.NewTask(func() {
					r.begin(i)
					defer r.end()
					time.Sleep(work)
				}), listen)
				all = append(all, m)
			}
			time.Sleep(60*time.Minute + 30*time.Second)
			for _, m := range all {
				m.end(t)
			}
			r.check(t, 60)
			mu.Lock()
			defer mu.Unlock()
			want := gocronholdfast.ErrDone.Error()
			if work > time.Second {
				want = holdfast.ErrHeld.Error()
			}
			if refused[want] != 120 {
				t.Errorf("refused: %v", refused)
			}
		})
	}
}

// TestLockerUnlockTellsLoss breaks the lock under a run: Unlock returns the loss, and
// the slot, which has been run, is done.
func TestLockerUnlockTellsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := holdfast.New(memlock.New(memlock.NewStore()))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		l, err := gocronholdfast.NewLocker(locks, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		for _, broken := range []bool{true, false} {
			lock, err := l.Lock(t.Context(), "report")
			if err != nil {
				t.Fatal(err)
			}
			if broken {
				seen, err := locks.Inspect(t.Context(), "report")
				if err != nil || len(seen.Holders) != 1 {
					t.Fatalf("%+v %v", seen, err)
				}
				if err := locks.Break(t.Context(), "report", seen.Holders[0].ID); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if err := lock.Unlock(t.Context()); errors.Is(err, holdfast.ErrLost) != broken {
				t.Errorf("broken %v: %v", broken, err)
			}
			_, err = l.Lock(t.Context(), "report")
			if !errors.Is(err, gocronholdfast.ErrDone) || !strings.Contains(err.Error(), `job "report", slot 20`) || !strings.Contains(err.Error(), "slot is done by pid ") {
				t.Errorf("the same slot again: %v", err)
			}
			time.Sleep(time.Hour)
		}
	})
}

// TestLockerTellsWhoDidTheSlot checks the words for the machine that did a slot, which
// may be known in part.
func TestLockerTellsWhoDidTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore()
		for want, by := range map[string]holdfast.Holder{
			"slot is done by pid 7 on app via gate": {Host: "app", PID: 7, Via: "gate"},
			"slot is done by a process via gate":    {Via: "gate"},
			"slot is done by pid 7 via gate":        {PID: 7, Via: "gate"},
			"slot is done by another machine":       {},
			"slot is done by a process on app":      {Host: "app"},
		} {
			locks, err := holdfast.New(memlock.New(store), holdfast.WithHolder(by), holdfast.WithNote("a note"))
			if err != nil {
				t.Fatal(err)
			}
			l, err := gocronholdfast.NewLocker(locks, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			lock, err := l.Lock(t.Context(), "report")
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Lock(t.Context(), "report"); err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if err := locks.Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
		}
	})
}

// counted counts the requests to a store.
type counted struct {
	*memlock.Driver
	requests int
	between  func() // called once, after the next mark is read
}

func (d *counted) Mark(ctx context.Context, name string) (driver.Mark, error) {
	d.requests++
	m, err := d.Driver.Mark(ctx, name)
	if then := d.between; then != nil {
		d.between = nil
		then()
	}
	return m, err
}

func (d *counted) SetMark(ctx context.Context, name string, m driver.Mark) error {
	d.requests++
	return d.Driver.SetMark(ctx, name, m)
}

func (d *counted) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.requests++
	return d.Driver.Join(ctx, t, wait)
}

func (d *counted) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.requests++
	return d.Driver.Leave(ctx, refs)
}

// TestLockerCostsFewRequests counts the requests of Lock and Unlock, also of a Lock whose
// slot another machine does between the first of them and the lock.
func TestLockerCostsFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore()
		d := &counted{Driver: memlock.New(store)}
		lockerOn := func(d holdfast.Driver) gocron.Locker {
			locks, err := holdfast.New(d)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locks.Close() })
			l, err := gocronholdfast.NewLocker(locks, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		own, other := lockerOn(d), lockerOn(memlock.New(store))
		run := func(l gocron.Locker, counts ...int) {
			lock, err := l.Lock(t.Context(), "report")
			if err != nil {
				t.Fatal(err)
			}
			if len(counts) > 0 && d.requests != counts[0] {
				t.Errorf("%d requests of Lock, want %d", d.requests, counts[0])
			}
			d.requests = 0
			if err := lock.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(counts) > 1 && d.requests != counts[1] {
				t.Errorf("%d requests of Unlock, want %d", d.requests, counts[1])
			}
		}
		run(own, 3, 2)
		time.Sleep(time.Hour)
		d.requests, d.between = 0, func() { run(other); d.requests = 1 }
		if _, err := own.Lock(t.Context(), "report"); !errors.Is(err, gocronholdfast.ErrDone) || d.requests != 4 {
			t.Errorf("%d requests, %v", d.requests, err)
		}
	})
}

func TestNewLockerRefusesBadLength(t *testing.T) {
	for _, every := range []time.Duration{0, -time.Second} {
		if l, err := gocronholdfast.NewLocker(nil, every); l != nil || err == nil || !strings.Contains(err.Error(), "length of the slots") {
			t.Errorf("%v: %v %v", every, l, err)
		}
	}
}

// TestElectorOneLeaderSchedules has three machines, of which one leads; another
// leads after its ticket was broken, and after it ended.
func TestElectorOneLeaderSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, r := memlock.NewStore(), newRuns()
		var all []*machine
		var electors []*gocronholdfast.Elector
		for i := range machines {
			m := newMachine(t, store, func(locks *holdfast.Client) []gocron.SchedulerOption {
				e := gocronholdfast.NewElector(t.Context(), locks, "reports")
				electors = append(electors, e)
				return []gocron.SchedulerOption{gocron.WithDistributedElector(e)}
			})
			m.every(t, time.Duration(i)*4*time.Second, gocron.NewTask(func() {
				r.begin(i)
				r.end()
			}))
			all = append(all, m)
			synctest.Wait() // the first one leads first
		}
		time.Sleep(20*time.Minute + 30*time.Second)
		seen, err := all[1].locks.Inspect(t.Context(), "reports")
		if err != nil || len(seen.Holders) != 1 || len(seen.Waiters) != 2 {
			t.Fatalf("%+v %v", seen, err)
		}
		if err := all[1].locks.Break(t.Context(), "reports", seen.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		if err := electors[0].IsLeader(t.Context()); !errors.Is(err, gocronholdfast.ErrNotLeader) {
			t.Errorf("after its ticket was broken: %v", err)
		}
		end := func(i int) {
			if err := all[i].scheduler.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := electors[i].Close(); err != nil {
				t.Error(err)
			}
			if err := electors[i].IsLeader(t.Context()); !errors.Is(err, gocronholdfast.ErrNotLeader) || !strings.Contains(err.Error(), "has ended") {
				t.Errorf("after its end: %v", err)
			}
		}
		end(1)
		time.Sleep(20 * time.Minute)
		leaders := 0
		for _, e := range electors {
			if e.IsLeader(t.Context()) == nil {
				leaders++
			}
		}
		if leaders != 1 {
			t.Errorf("%d leaders", leaders)
		}
		end(0)
		end(2)
		for _, m := range all {
			if err := m.locks.Close(); err != nil {
				t.Error(err)
			}
		}
		r.check(t, 60)
		if got := []int{r.by[0], r.by[1], r.by[2]}; !slices.Equal(got, []int{20, 20, 20}) {
			t.Errorf("runs by machine: %v", got)
		}
	})
}

// TestElectorTellsWhyCampaignEnded closes the client below an Elector.
func TestElectorTellsWhyCampaignEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := holdfast.New(memlock.New(memlock.NewStore()))
		if err != nil {
			t.Fatal(err)
		}
		e := gocronholdfast.NewElector(t.Context(), locks, "reports")
		synctest.Wait()
		if err := e.IsLeader(t.Context()); err != nil {
			t.Error(err)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := e.IsLeader(t.Context()); !errors.Is(err, gocronholdfast.ErrNotLeader) || !errors.Is(err, holdfast.ErrShutdown) {
			t.Error(err)
		}
		if err := e.Close(); !errors.Is(err, holdfast.ErrShutdown) {
			t.Error(err)
		}
	})
}
