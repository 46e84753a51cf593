package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// counting is a store in memory that counts the requests about marks and the calls of
// Close, and has one finding.
type counting struct {
	*hooked
	mu                         sync.Mutex
	reads, writes, looks, ends int
	afterRead                  func() // called once, after the next read
}

func (c *counting) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *counting) memory() *memlock.Driver { return c.hooked.Driver.(*memlock.Driver) }

func (c *counting) Mark(ctx context.Context, name string) (driver.Mark, error) {
	c.count(&c.reads)
	m, err := c.memory().Mark(ctx, name)
	if then := c.afterRead; then != nil {
		c.afterRead = nil
		then()
	}
	return m, err
}

func (c *counting) SetMark(ctx context.Context, name string, m driver.Mark) error {
	c.count(&c.writes)
	return c.memory().SetMark(ctx, name, m)
}

func (c *counting) Check(context.Context) ([]driver.Finding, error) {
	c.count(&c.looks)
	return []driver.Finding{{Level: driver.Warning, Detail: "weaker"}}, nil
}

func (c *counting) Close() error {
	c.count(&c.ends)
	return c.hooked.Close()
}

// TestClientOwnsItsDriver checks that Close and Shutdown close the driver, once, and
// that New with a bad option leaves it to the caller.
func TestClientOwnsItsDriver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, shutdown := range []bool{false, true} {
			d := &counting{hooked: hook(memlock.NewStore())}
			c := client(t, d)
			end := c.Close
			if shutdown {
				end = func() error { return c.Shutdown(bg) }
			}
			for range 2 {
				if err := end(); err != nil {
					t.Error(err)
				}
			}
			if d.ends != 1 {
				t.Errorf("the driver was closed %d times", d.ends)
			}
		}
		d := &counting{hooked: hook(memlock.NewStore())}
		if _, err := holdfast.New(d, holdfast.WithTTL(0)); err == nil || d.ends != 0 {
			t.Errorf("New with a bad option: %v, the driver was closed %d times", err, d.ends)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestCheckHasTheFindings checks that Check examines the store at each call, and returns
// what it found.
func TestCheckHasTheFindings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &counting{hooked: hook(memlock.NewStore())}
		c := client(t, d)
		before := d.looks
		for range 2 {
			findings, err := c.Check(bg)
			if err != nil || len(findings) != 1 || findings[0].Level != holdfast.LevelWarning || findings[0].Detail != "weaker" {
				t.Errorf("%+v, %v", findings, err)
			}
		}
		if d.looks != before+2 {
			t.Errorf("%d examinations", d.looks-before)
		}
	})
}

// TestRequestsOfOnce counts the requests of TryOnce for a slot that is open, for one that
// another machine does after the first of them, and while another runs, those of a late
// call for one that is done, and of LastDone, which takes no lock.
func TestRequestsOfOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &counting{hooked: hook(memlock.NewStore())}
		c := client(t, d)
		slot := holdfast.Slot(time.Now(), time.Hour)
		requests := func() [4]int { return [4]int{d.reads, d.joins, d.writes, d.leaves} }
		last, err := c.LastDone(bg, "job")
		if err != nil || last != (holdfast.Done{}) || requests() != [4]int{1, 0, 0, 0} {
			t.Errorf("LastDone of nothing: %+v, %v, requests %v", last, err, requests())
		}
		before := requests()
		done, err := c.TryOnce(bg, "job", slot, func(ctx context.Context) error {
			if holdfast.Token(ctx, "job") == 0 || d.joins != 1 || d.reads > 3 {
				t.Errorf("token %d, requests %v", holdfast.Token(ctx, "job"), requests())
			}
			time.Sleep(time.Second)
			return nil
		})
		if err != nil || !done.Here || done.Token == 0 || done.By.PID == 0 || done.At.Before(slot) {
			t.Errorf("%+v, %v", done, err)
		}
		if after := requests(); after != [4]int{before[0] + 2, before[1] + 1, before[2] + 1, before[3] + 1} {
			t.Errorf("a run: requests %v after %v", after, before)
		}
		before = requests()
		late, err := c.Once(bg, "job", slot, func(context.Context) error { t.Error("it ran twice"); return nil })
		if after := requests(); err != nil || late.Here || late.Token != done.Token || after != [4]int{before[0] + 1, before[1], before[2], before[3]} {
			t.Errorf("%+v, %v, requests %v after %v", late, err, after, before)
		}
		open := slot.Add(time.Hour)
		rival := must(t)(client(t, d.memory()).Mutex("job").Lock(bg))
		before = requests()
		_, err = c.TryOnce(bg, "job", open, func(context.Context) error { t.Error("it ran beside a rival"); return nil })
		wantErr(t, err, holdfast.ErrHeld)
		if after := requests(); after != [4]int{before[0] + 1, before[1] + 1, before[2], before[3]} {
			t.Errorf("TryOnce while another runs: requests %v after %v", after, before)
		}
		unlock(t, rival)
		other := client(t, d.memory())
		meanwhile := slot.Add(-time.Hour)
		d.afterRead = func() {
			if done := runOnce(t, other, meanwhile, func(context.Context) error { return nil }); !done.Here {
				t.Errorf("the rival did not run the slot: %+v", done)
			}
		}
		before = requests()
		late, err = c.TryOnce(bg, "job", meanwhile, func(context.Context) error { t.Error("it ran twice"); return nil })
		if after := requests(); err != nil || late.Here || !late.Slot.Equal(meanwhile) ||
			after != [4]int{before[0] + 2, before[1] + 1, before[2], before[3] + 1} {
			t.Errorf("a slot that is done meanwhile: %+v, %v, requests %v after %v", late, err, after, before)
		}
		slot = slot.Add(2 * time.Hour)
		done = runOnce(t, other, slot, func(context.Context) error { return nil })
		before = requests()
		last, err = c.LastDone(bg, "job")
		if err != nil || last.Here || !last.Slot.Equal(slot) || last.Token != done.Token {
			t.Errorf("%+v, %v", last, err)
		}
		if after := requests(); after != [4]int{before[0] + 1, before[1], before[2], before[3]} {
			t.Errorf("requests %v after %v", after, before)
		}
	})
}

// TestDoneOfAnEarlierSlot checks that a slot whose machine the record no longer tells
// has By, At and Token zero, and counts as done all the same.
func TestDoneOfAnEarlierSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		first := holdfast.Slot(time.Now(), time.Minute)
		for i := range 60 {
			if _, err := c.Once(bg, "job", first.Add(time.Duration(i)*time.Minute), func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		known := 0
		for i := range 60 {
			done, err := c.Once(bg, "job", first.Add(time.Duration(i)*time.Minute), func(context.Context) error { t.Error("twice"); return nil })
			if err != nil || done.Here {
				t.Fatalf("%+v, %v", done, err)
			}
			switch {
			case done.By != (holdfast.Holder{}) && !done.At.IsZero() && done.Token != 0:
				known++
			case done.By != (holdfast.Holder{}) || !done.At.IsZero() || done.Token != 0:
				t.Errorf("slot %d is told in part: %+v", i, done)
			case known > 0:
				t.Errorf("slot %d is not told, an earlier one is", i)
			}
		}
		if known < 12 || known == 60 {
			t.Errorf("%d slots are told", known)
		}
	})
}

// TestLeadIgnoresMaxWait checks that WithMaxWait does not end a campaign, and that a
// standby sends what a waiter sends.
func TestLeadIgnoresMaxWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		requests := func(wait func(c *holdfast.Client, ctx context.Context)) int {
			d := hook(s)
			c, other := client(t, d), client(t, memlock.New(s))
			h := must(t)(other.Mutex("a").Lock(bg))
			ctx, cancel := context.WithCancel(bg)
			ended := make(chan struct{})
			go func() { defer close(ended); wait(c, ctx) }()
			time.Sleep(time.Hour + c.TTL()/6) // between two renewals
			d.mu.Lock()
			n := d.joins + d.renews
			d.mu.Unlock()
			select {
			case <-ended:
				t.Error("the wait ended")
			default:
			}
			unlock(t, h)
			cancel()
			<-ended
			return n
		}
		standby := requests(func(c *holdfast.Client, ctx context.Context) {
			err := c.Lead(ctx, "a", func(ctx context.Context) error { <-ctx.Done(); return nil }, holdfast.WithMaxWait(time.Second))
			if err != nil {
				t.Error(err)
			}
		})
		waiter := requests(func(c *holdfast.Client, ctx context.Context) {
			if h, err := c.Mutex("a").Lock(ctx); err == nil {
				_ = h.Unlock()
			}
		})
		if standby != waiter {
			t.Errorf("%d requests of a standby, %d of a waiter", standby, waiter)
		}
	})
}

// TestLostErrorFields checks the fields of a LostError, and that Detach of a lost hold
// returns it. Detach of a nested hold is another error, and detaches nothing; one that
// succeeds sends a renewal alone.
func TestLostErrorFields(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		time.Sleep(time.Second)
		granted := time.Now()
		h := must(t)(c.Mutex("a", holdfast.WithOwner("o")).Lock(bg))
		time.Sleep(time.Minute)
		nested := must(t)(c.Mutex("a").Lock(h.Context()))
		if err := nested.Detach(); err == nil || nested.Err() != nil || h.Err() != nil {
			t.Errorf("Detach of a nested hold: %v; %v, %v", err, nested.Err(), h.Err())
		}
		unlock(t, nested)
		if err := other.Break(bg, "a", h.Ticket()); err != nil {
			t.Fatal(err)
		}
		settle()
		lost, ok := errors.AsType[*holdfast.LostError](h.Detach())
		if !ok || lost.Name != "a" || lost.Reason != holdfast.LossGone || lost.Token != h.Token() || !lost.Since.Equal(granted) {
			t.Errorf("%+v", lost)
		}
		kept := must(t)(c.Mutex("b", holdfast.WithOwner("o")).Lock(bg))
		time.Sleep(time.Second)
		joins, renews, leaves := d.joins, d.sentRenews(), d.leaves
		if err := kept.Detach(); err != nil {
			t.Error(err)
		}
		if d.joins != joins || d.sentRenews() != renews+1 || d.leaves != leaves {
			t.Errorf("Detach sent %d joins, %d renewals and %d leaves", d.joins-joins, d.sentRenews()-renews, d.leaves-leaves)
		}
		if left := mustLookAt(t, other, "b").Holders[0].Left; left < c.TTL() {
			t.Errorf("%v left of the lease that Detach renewed", left)
		}
		settle()
		wantErr(t, context.Cause(kept.Context()), holdfast.ErrReleased)
	})
}

// TestTryOfSeveralNamesTheFirst checks that TryLock of a Multi names the first of the
// names, in their order, that was not free, and that Unlock of the hold is idempotent.
func TestTryOfSeveralNamesTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		held := []*holdfast.Hold{must(t)(other.Mutex("c").Lock(bg)), must(t)(other.Mutex("b").Lock(bg))}
		_, err := c.Multi([]string{"d", "c", "b", "a"}).TryLock(bg)
		if failed, ok := errors.AsType[*holdfast.HeldError](err); !ok || failed.Name != "b" {
			t.Errorf("%+v", err)
		}
		for _, h := range held {
			unlock(t, h)
		}
		h, err := c.Multi([]string{"d", "c", "b", "a"}).TryLock(bg)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		}
		wantErr(t, h.Err(), holdfast.ErrReleased)
	})
}

// TestCloseDoesNotWaitForHoldDone checks that Close returns while a HoldDone that it has
// caused still runs.
func TestCloseDoesNotWaitForHoldDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		running, end := make(chan struct{}), make(chan struct{})
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(&holdfast.Observer{
			HoldDone: func(context.Context, holdfast.HoldDoneInfo) { close(running); <-end },
		}))
		must(t)(c.Mutex("a").Lock(bg))
		begun := time.Now()
		if err := c.Close(); err != nil || time.Since(begun) > time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(begun))
		}
		<-running
		close(end)
		synctest.Wait()
	})
}

// TestManualLockKeepsItsPlace checks that the client renews the place of a Lock with
// WithManualRenewal while it waits, for many leases, and not the hold.
func TestManualLockKeepsItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(other.Mutex("a").Lock(bg))
		granted := make(chan *holdfast.Hold, 1)
		go func() { granted <- must(t)(c.Mutex("a", holdfast.WithManualRenewal()).Lock(bg)) }()
		settle()
		place := mustLookAt(t, other, "a").Waiters[0].ID
		time.Sleep(20 * c.TTL())
		if l := mustLookAt(t, other, "a"); len(l.Waiters) != 1 || l.Waiters[0].ID != place {
			t.Errorf("the place is gone: %+v", l.Waiters)
		}
		unlock(t, h)
		manual := <-granted
		time.Sleep(c.TTL())
		wantErr(t, manual.Err(), holdfast.ErrLost)
		_ = manual.Unlock()
	})
}

// TestTokenFitsADouble checks that a token is below 2^53 while the store's counter is
// below 2^45, local hand-offs included, and 0 where the store has no tokens.
func TestTokenFitsADouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, store := range []uint64{0, 1, 1<<45 - 1} {
			d := hook(memlock.NewStore())
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				s, err := next()
				s.Token = store
				return s, err
			}
			c := client(t, d)
			m := c.Mutex("a")
			h := must(t)(m.Lock(bg))
			last := h.Token()
			for range 200 { // handed over in the client
				next := make(chan *holdfast.Hold)
				go func() { next <- must(t)(m.Lock(bg)) }()
				synctest.Wait()
				unlock(t, h)
				h = <-next
				if h.Token() >= 1<<53 || (h.Token() == 0) != (store == 0) || store > 0 && h.Token() <= last {
					t.Fatalf("token %d after %d of a store whose counter is at %d", h.Token(), last, store)
				}
				last = h.Token()
			}
			unlock(t, h)
		}
	})
}
