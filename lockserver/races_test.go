package lockserver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

var bg = context.Background()

// lockAfter returns a channel that is closed when a Go program has the lock, and has
// released it.
func (w *world) lockAfter(name string) <-chan time.Time {
	c, got := w.client(), make(chan time.Time, 1)
	go func() {
		defer close(got)
		h, err := c.Mutex(name).Lock(bg)
		if err != nil {
			return // the world has ended
		}
		at := time.Now()
		if err := h.Unlock(); err != nil {
			w.Error(err)
		}
		got <- at
	}()
	synctest.Wait()
	return got
}

// TestHoldGoesOnAtAnotherServer checks that a second server finds the place and the
// token of a hold whose server is dead, that nobody held in between, and that a release
// after the move frees the lock at once.
func TestHoldGoesOnAtAnotherServer(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.server(), w.server()
		first := w.acquire(a, 1, "a")
		next := w.lockAfter("a")
		time.Sleep(3 * time.Second) // a is dead from here on: nobody asks it
		w.want("resume", w.acquire(b, 1, "a", "resume", first.text("token")), 200, "state", "held", "token", first.text("token"), "left_ms", "8890")
		for range 5 {
			time.Sleep(3 * time.Second)
			w.want("renew", w.renew(b, 1), 200, "state", "held", "token", first.text("token"))
		}
		select {
		case <-next:
			t.Fatal("another held meanwhile")
		default:
		}
		w.want("release", w.release(b, 1, "a", "moved", "true"), 200, "result", "released")
		asked := time.Now()
		if at := <-next; at.Sub(asked) != 0 {
			t.Errorf("the next one held %v after the release", at.Sub(asked))
		}
	})
}

// TestBalancerBringsRenewalsToTheOtherServer checks that a hold lasts whose renewals all
// reach a server that does not know it, and whose resumes all reach the one that does.
func TestBalancerBringsRenewalsToTheOtherServer(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.server(), w.server()
		first := w.acquire(a, 1, "a")
		for range 5 {
			time.Sleep(3 * time.Second)
			w.want("renew", w.renew(b, 1), 200, "code", "unknown_hold")
			w.want("resume", w.acquire(a, 1, "a", "resume", first.text("token")), 200, "state", "held", "token", first.text("token"), "left_ms", "8890")
		}
		w.want("release", w.release(a, 1, "a"), 200, "result", "released")
		if holders, waiters := w.tickets(w.client(), "a"); holders+waiters != 0 {
			t.Errorf("%d holders and %d waiters are left", holders, waiters)
		}
	})
}

// TestAttack4ReleaseAfterAMove checks that a release with moved frees the lock while the
// ticket of the first server still lives, and that one without leaves that ticket.
func TestAttack4ReleaseAfterAMove(t *testing.T) {
	for _, moved := range []bool{true, false} {
		bubble(t, func(w *world) {
			a, b, c := w.server(), w.server(), w.client()
			first := w.acquire(a, 1, "a")
			w.acquire(b, 1, "a", "resume", first.text("token"))
			if h, _ := w.tickets(c, "a"); h != 2 {
				t.Fatalf("%d tickets of the owner, want 2", h)
			}
			w.want("release", w.release(b, 1, "a", "moved", fmt.Sprint(moved)), 200, "result", "released")
			want := 1
			if moved {
				want = 0
			}
			if h, _ := w.tickets(c, "a"); h != want {
				t.Errorf("moved %v: %d tickets, want %d", moved, h, want)
			}
			settle()
		})
	}
}

// TestAttack3ResumeAtTwoServersAtOnce checks that both share the place, that taking over breaks
// nothing, and that each answers for its own lease.
func TestAttack3ResumeAtTwoServersAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.server(), w.server(), w.server()
		first := w.acquire(a, 1, "a")
		var group sync.WaitGroup
		for _, s := range []*Server{b, c} {
			group.Go(func() {
				w.want("resume", w.acquire(s, 1, "a", "resume", first.text("token")), 200, "state", "held", "token", first.text("token"))
			})
		}
		group.Wait()
		for i := range 12 { // a balancer in turn
			time.Sleep(2 * time.Second)
			s := []*Server{a, b, c}[i%3]
			w.want("renew in turn", w.renew(s, 1), 200, "state", "held", "token", first.text("token"))
		}
		w.want("release", w.release(c, 1, "a", "moved", "true"), 200, "result", "released")
		if h, n := w.tickets(w.client(), "a"); h+n != 0 {
			t.Errorf("%d tickets are left", h+n)
		}
	})
}

// TestAttack2ResumeMakesNoNewGrant checks that resume of a hold that is gone takes no lock, at
// a server that knew it and at one that did not, although the lock is free.
func TestAttack2ResumeMakesNoNewGrant(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.server(), w.server()
		first := w.acquire(a, 1, "a")
		time.Sleep(10 * time.Second)
		for _, s := range []*Server{a, b} {
			w.want("resume", w.acquire(s, 1, "a", "resume", first.text("token")), 410, "code", "lost", "reason", "gone")
			w.want("resume again", w.acquire(s, 1, "a", "resume", first.text("token")), 410, "code", "lost")
		}
		w.want("acquire of the lost id", w.acquire(a, 1, "a"), 410, "code", "lost")
		if h, n := w.tickets(w.client(), "a"); h+n != 0 {
			t.Errorf("%d tickets after questions", h+n)
		}
		second := w.acquire(a, 2, "a")
		w.want("resume by another's token", w.acquire(b, 3, "a", "resume", second.text("token")), 410, "code", "lost")
		w.release(a, 2, "a")
	})
}

// TestResumeComparesTheToken checks that a place of the same owner with another token is
// no resumed hold, and is left as it is.
func TestResumeComparesTheToken(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.server(), w.server(), w.server()
		first := w.acquire(a, 1, "a")
		w.release(a, 1, "a")
		second := w.acquire(b, 1, "a") // elsewhere the id is a new try
		w.want("second", second, 200, "state", "held")
		if second.text("token") == first.text("token") {
			t.Fatal("one token for two grants")
		}
		w.want("resume by the old token", w.acquire(c, 1, "a", "resume", first.text("token")), 410, "code", "lost")
		if h, _ := w.tickets(w.client(), "a"); h != 1 {
			t.Errorf("%d tickets, want that of the second server", h)
		}
		w.release(b, 1, "a")
	})
}

// TestAttack5StoppedServerRenewsNothing checks that a server whose client went on elsewhere lets
// go of its own ticket only.
func TestAttack5StoppedServerRenewsNothing(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.server(), w.server(), w.client()
		first := w.acquire(a, 1, "a")
		w.acquire(b, 1, "a", "resume", first.text("token"))
		for range 8 {
			time.Sleep(3 * time.Second)
			w.want("renew", w.renew(b, 1), 200, "state", "held")
		}
		if h, _ := w.tickets(c, "a"); h != 1 {
			t.Errorf("%d tickets, want b's alone", h)
		}
		w.want("a request left in a socket of the first server", w.renew(a, 1), 200, "state", "held", "token", first.text("token"))
		time.Sleep(10 * time.Second)
		w.want("renewal after the claim", w.renew(b, 1), 200, "status", "410", "code", "lost")
	})
}

// TestLostTicketGetsAnOwnerCheck checks that a server whose ticket is gone asks the store
// whether the owner holds by another's: the hold goes on then, and is lost otherwise.
func TestLostTicketGetsAnOwnerCheck(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.server(), w.server(), w.client()
		first := w.acquire(a, 1, "a")
		w.acquire(b, 1, "a", "resume", first.text("token"))
		info, err := c.Inspect(bg, "a")
		if err != nil || len(info.Holders) != 2 {
			t.Fatal(info, err)
		}
		for _, ticket := range info.Holders {
			if ticket.Holder.Via == via(a.name, "192.0.2.1", LocalName) {
				if err := c.Break(bg, "a", ticket.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		settle()
		w.want("renew at the server whose ticket is gone", w.renew(a, 1), 200, "state", "held", "token", first.text("token"))
		info, err = c.Inspect(bg, "a")
		if err != nil || len(info.Holders) != 2 {
			t.Fatal(info, err)
		}
		for _, ticket := range info.Holders {
			if err := c.Break(bg, "a", ticket.ID); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		w.want("renew of a broken hold", w.renew(a, 1), 200, "status", "410", "code", "lost", "reason", "gone")
		w.want("renew of a broken hold", w.renew(b, 1), 200, "status", "410", "code", "lost", "reason", "gone")
	})
}

// TestTwoConnectionsWithOneID checks that both get the same answers, and that a release
// by one is one for both.
func TestTwoConnectionsWithOneID(t *testing.T) {
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		w.acquire(s, 1, "a")
		var answers [2]reply
		var group sync.WaitGroup
		for i := range answers {
			group.Go(func() { answers[i] = w.acquire(s, 2, "a") })
		}
		time.Sleep(time.Second)
		if _, n := w.tickets(c, "a"); n != 1 {
			t.Errorf("%d waiters, want 1", n)
		}
		w.release(s, 1, "a")
		group.Wait()
		if answers[0].text("token") != answers[1].text("token") || answers[0].text("state") != "held" {
			t.Errorf("%s and %s", answers[0].raw, answers[1].raw)
		}
		w.release(s, 2, "a")
		w.want("the other connection", w.renew(s, 2), 200, "code", "released")
	})
}

// TestReleaseEndsAWait checks that a release ends a poll under way and leaves no place,
// and that an acquire that comes after it takes none.
func TestReleaseEndsAWait(t *testing.T) {
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		w.acquire(s, 1, "a")
		var answer reply
		var group sync.WaitGroup
		group.Go(func() { answer = w.acquire(s, 2, "a") })
		time.Sleep(time.Second)
		w.want("release", w.release(s, 2, "a"), 200, "result", "released")
		group.Wait()
		w.want("the poll", answer, 410, "code", "released")
		settle()
		if _, n := w.tickets(c, "a"); n != 0 {
			t.Errorf("%d waiters", n)
		}
		w.want("late acquire", w.acquire(s, 2, "a"), 410, "code", "released")
		time.Sleep(time.Minute + 50*time.Second)
		w.want("later acquire", w.acquire(s, 2, "a"), 410, "code", "released")
		w.release(s, 1, "a")
	})
}

// TestReleaseOfAnUnknownID checks a release that overtakes its acquire: nothing is held,
// and the acquire takes nothing afterwards.
func TestReleaseOfAnUnknownID(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.server(), w.server()
		w.want("release", w.release(a, 1, "a"), 200, "result", "gone")
		w.want("acquire after it", w.acquire(a, 1, "a"), 410, "code", "released")
		w.acquire(b, 2, "a")
		w.want("release at another server", w.release(a, 2, "a", "moved", "true"), 200, "result", "released")
		w.want("the same again", w.release(a, 2, "a", "moved", "true"), 200, "result", "released")
		settle()
		w.want("renew where it was held", w.renew(b, 2), 200, "status", "410", "code", "lost")
	})
}

// TestAttack11AcquireReplayedAtAnotherServer checks that the place of an acquire that nobody
// waits for is given back a third of the TTL after its grant.
func TestAttack11AcquireReplayedAtAnotherServer(t *testing.T) {
	bubble(t, func(w *world) {
		b := w.server()
		w.acquire(b, 2, "b") // until the server knows its group, it takes no request of a client that is gone
		ctx, hangUp := context.WithCancel(bg)
		hangUp()
		w.postCtx(ctx, b, "/v1/acquire", "id", id(1), "name", "a", "ttl_ms", "9000")
		synctest.Wait()
		asked := time.Now()
		if at := <-w.lockAfter("a"); at.Sub(asked) != 3*time.Second {
			t.Errorf("the next one waited %v", at.Sub(asked))
		}
		w.want("acquire after it was given back", w.acquire(b, 1, "a"), 200, "state", "held")
		w.release(b, 1, "a")
	})
}

// TestGrantWithoutAnAnswerIsGivenBack checks that a grant of which nothing could be sent
// is given back, half a TTL after its client was last heard of, and that the client's next
// acquire stands at the end.
func TestGrantWithoutAnAnswerIsGivenBack(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		ctx, hangUp := context.WithCancel(bg)
		var group sync.WaitGroup
		group.Go(func() { w.postCtx(ctx, s, "/v1/acquire", "id", id(2), "name", "a", "ttl_ms", "9000") })
		time.Sleep(time.Second)
		hangUp()
		group.Wait()
		next := w.lockAfter("a")
		w.release(s, 1, "a")
		released := time.Now()
		if at := <-next; at.Sub(released) != 4500*time.Millisecond {
			t.Errorf("the next one held %v after the grant that nobody took", at.Sub(released))
		}
		w.want("renew", w.renew(s, 2), 200, "status", "404", "code", "unknown_hold")
	})
}

// TestAttack8GrantThatWasSentIsNotGivenBack checks that the claim alone ends a hold of which an
// answer was sent.
func TestAttack8GrantThatWasSentIsNotGivenBack(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		next, begun := w.lockAfter("a"), time.Now()
		if at := <-next; at.Sub(begun) < 8890*time.Millisecond {
			t.Errorf("the next one held after %v", at.Sub(begun))
		}
	})
}

// TestSilentWaiterLosesItsPlace checks that the place of a client that is silent for a
// TTL is left, and that polls keep it.
func TestSilentWaiterLosesItsPlace(t *testing.T) {
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		h, err := c.Mutex("a").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			w.want("poll", w.acquire(s, 1, "a", "wait_ms", "1000"), 202, "state", "waiting")
			time.Sleep(5 * time.Second)
			w.want("renewal of the place", w.renew(s, 1), 200, "state", "waiting")
			time.Sleep(2 * time.Second)
		}
		time.Sleep(10 * time.Second)
		if _, n := w.tickets(c, "a"); n != 0 {
			t.Errorf("%d waiters after a silence", n)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// TestAttack7HintIsBelievedOnlyOnItsPlace checks attack 7: left_ms of a waiting answer is what is
// left of the place's claim, and shrinks until the store confirms the place again.
func TestAttack7HintIsBelievedOnlyOnItsPlace(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		go func() {
			for range 4 {
				time.Sleep(2 * time.Second)
				w.renew(s, 1)
			}
		}()
		w.acquire(s, 2, "a", "wait_ms", "0")
		time.Sleep(2 * time.Second)
		w.want("poll", w.acquire(s, 2, "a", "wait_ms", "0"), 202, "left_ms", "6890")
		time.Sleep(6500 * time.Millisecond)
		w.release(s, 1, "a")
		w.release(s, 2, "a")
	})
}

// TestAttack1LateAnswerCountsFromItsRequest checks attack 1: what is left is counted from the
// begin of the request, however late the answer is written.
func TestAttack1LateAnswerCountsFromItsRequest(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		time.AfterFunc(7*time.Second, func() { w.release(s, 1, "a") })
		asked := time.Now()
		r := w.acquire(s, 2, "a")
		s.table.mu.Lock()
		until := s.table.holds[s.table.keyOf(LocalName, id(2))].until
		s.table.mu.Unlock()
		if got := asked.Add(time.Duration(r.number("left_ms")) * time.Millisecond); got.After(until) {
			t.Errorf("the client believes until %v, the server until %v", got, until)
		}
		w.release(s, 2, "a")
	})
}

// TestIDInUse checks that an id asks for one thing only.
func TestIDInUse(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		w.want("another name", w.acquire(s, 1, "b"), 409, "code", "id_in_use")
		w.want("another kind", w.acquire(s, 1, "a", "kind", "write"), 409, "code", "id_in_use")
		w.want("another TTL", w.post(s, "/v1/acquire", "id", id(1), "name", "a", "ttl_ms", "9001"), 409, "code", "id_in_use")
		w.want("release of another name", w.release(s, 1, "b"), 200, "code", "id_in_use")
		w.want("renew", w.renew(s, 1), 200, "state", "held")
		w.release(s, 1, "a")
	})
}

// TestMaxHoldEndsAHold checks that the bound is final, and told with its reason.
func TestMaxHoldEndsAHold(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.want("acquire", w.acquire(s, 1, "a", "max_hold_ms", "5000"), 200, "left_ms", "5000")
		time.Sleep(4 * time.Second)
		w.want("renew", w.renew(s, 1), 200, "state", "held", "left_ms", "1000")
		time.Sleep(2 * time.Second)
		w.want("renew", w.renew(s, 1), 200, "status", "410", "code", "lost", "reason", "max_hold")
		w.want("acquire", w.acquire(s, 1, "a", "max_hold_ms", "5000"), 410, "code", "lost", "reason", "max_hold")
		w.release(s, 1, "a")
		settle()
		w.want("the next one", w.acquire(s, 2, "a", "try", "true"), 200, "state", "held")
		w.release(s, 2, "a")
	})
}

// silent is a driver whose renewals are not answered while it is silent.
type silent struct {
	*memlock.Driver
	mu       sync.Mutex
	on       bool
	renews   int
	joins    int
	leaves   int
	inspects int
}

func (d *silent) set(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = on
}

func (d *silent) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.mu.Lock()
	d.renews++
	on := d.on
	d.mu.Unlock()
	if on {
		<-ctx.Done()
		return nil, driver.Errorf(driver.Unknown, "no answer: %w", ctx.Err())
	}
	return d.Driver.Renew(ctx, refs)
}

func (d *silent) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.mu.Lock()
	d.joins++
	d.mu.Unlock()
	return d.Driver.Join(ctx, t, wait)
}

func (d *silent) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.mu.Lock()
	d.leaves++
	d.mu.Unlock()
	return d.Driver.Leave(ctx, refs)
}

func (d *silent) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	d.mu.Lock()
	d.inspects++
	d.mu.Unlock()
	return d.Driver.Inspect(ctx, name)
}

// TestAttack15RenewalWithoutAnAnswer checks attack 15: while the store is silent, a renewal
// answers after TTL/8 with what is left of the old claim, and so does a resume.
func TestAttack15RenewalWithoutAnAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		d := &silent{Driver: memlock.New(w.store)}
		s := w.serverWith(w.clientOf(d), Options{})
		held := w.acquire(s, 1, "a")
		d.set(true)
		time.Sleep(2 * time.Second)
		asked := time.Now()
		w.want("renew", w.renew(s, 1), 200, "status", "503", "code", "store_unknown", "left_ms", "6890")
		if took := time.Since(asked); took != 9*time.Second/8 {
			t.Errorf("the answer took %v", took)
		}
		w.want("resume", w.acquire(s, 1, "a", "resume", held.text("token")), 503, "code", "store_unknown", "left_ms", "5765")
		d.set(false)
		time.Sleep(time.Second)
		w.want("renew", w.renew(s, 1), 200, "state", "held")
		w.release(s, 1, "a")
	})
}

// TestRenewalsShareRequests checks that 100 renewals in a batch cost one request of the
// store, and that an uncontended hold costs a Join and a Leave.
func TestRenewalsShareRequests(t *testing.T) {
	bubble(t, func(w *world) {
		d := &silent{Driver: memlock.New(w.store)}
		s := w.serverWith(w.clientOf(d), Options{})
		var fields []string
		for i := range maxBatch {
			w.want("acquire", w.acquire(s, i, fmt.Sprint(i)), 200, "state", "held")
			fields = append(fields, "id", id(i))
		}
		r := w.post(s, "/v1/renew", fields...)
		for i := range maxBatch {
			w.want("renew", r.entry(i), 200, "state", "held", "id", id(i))
		}
		if d.renews != 1 || d.joins != maxBatch {
			t.Errorf("%d requests for 100 renewals, %d for 100 acquires", d.renews, d.joins)
		}
		for i := range maxBatch {
			w.want("release", w.release(s, i, fmt.Sprint(i)), 200, "result", "released")
		}
		if d.joins+d.leaves+d.inspects != 2*maxBatch {
			t.Errorf("%d requests for 100 holds", d.joins+d.leaves+d.inspects)
		}
	})
}

// between is a driver that does something after an Inspect, before the next request.
type between struct {
	*memlock.Driver
	do func()
}

func (d *between) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	q, err := d.Driver.Inspect(ctx, name)
	if f := d.do; f != nil {
		d.do = nil
		f()
	}
	return q, err
}

// TestResumeComparesAfterTheJoin checks an owner check whose place ends between its two
// requests: the Try takes a new place, whose token is another, and it is given back.
func TestResumeComparesAfterTheJoin(t *testing.T) {
	bubble(t, func(w *world) {
		d := &between{Driver: memlock.New(w.store)}
		a, b := w.server(), w.serverWith(w.clientOf(d), Options{})
		first := w.acquire(a, 1, "a")
		w.get(b, "/v1/server") // it has asked for the group
		d.do = func() { w.release(a, 1, "a") }
		w.want("resume", w.acquire(b, 1, "a", "resume", first.text("token")), 410, "code", "lost", "reason", "gone")
		settle()
		if h, n := w.tickets(w.client(), "a"); h+n != 0 {
			t.Errorf("%d tickets after the question", h+n)
		}
	})
}
