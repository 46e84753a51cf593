package drivertest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// restrictedUser is a client whose user lacks a right, and the lines it was about.
type restrictedUser struct {
	*client
	right string
	names []string
}

// checkRefusal checks that a request of a user who lacks a right was carried out, or
// refused.
func checkRefusal(t T, right, op string, err error) bool {
	t.Helper()
	if err != nil && driver.ClassOf(err) != driver.Refused {
		t.Errorf("without %s, %s: the class of %q is %v, want %v", right, op, err, driver.ClassOf(err), driver.Refused)
	}
	return err == nil
}

// openAs opens a client of a user. It returns nil where that is refused.
func (w *world) openAs(u User, right string) *client {
	w.Helper()
	d, err := u.Open(w.T)
	if err != nil {
		checkRefusal(w, right, "open", err)
		checkNamesRight(w, right, err.Error())
		return nil
	}
	return w.adopt(d)
}

// checkNamesRight checks that a text names a right.
func checkNamesRight(t T, right, text string) {
	t.Helper()
	if !strings.Contains(strings.ToLower(text), strings.ToLower(right)) {
		t.Errorf("%s lacks, and all that is said is: %s", right, text)
	}
}

// use joins, renews, and, if leaves is true, leaves.
func (l *restrictedUser) use(t *driver.Ticket, leaves bool) {
	l.w.Helper()
	if err := l.request("Join", t, func(refs []driver.Ref) ([]driver.Status, error) {
		ctx, cancel := l.w.limit()
		defer cancel()
		p, err := l.d.Join(ctx, t, true)
		return []driver.Status{p}, err
	}); err != nil {
		return
	}
	_ = l.request("Renew", t, l.renewRefs)
	if leaves {
		_ = l.request("Leave", t, l.leaveRefs)
	}
}

func (l *restrictedUser) renewRefs(refs []driver.Ref) ([]driver.Status, error) {
	ctx, cancel := l.w.limit()
	defer cancel()
	return l.d.Renew(ctx, refs)
}

func (l *restrictedUser) leaveRefs(refs []driver.Ref) ([]driver.Status, error) {
	ctx, cancel := l.w.limit()
	defer cancel()
	return l.d.Leave(ctx, refs)
}

// request makes one request about one ticket, which may be refused.
func (l *restrictedUser) request(op string, t *driver.Ticket, f func([]driver.Ref) ([]driver.Status, error)) error {
	l.w.Helper()
	ps, err := f([]driver.Ref{{Ticket: t, State: driver.Held}})
	if err == nil && len(ps) != 1 {
		l.w.Fatalf("%s of one ticket has %d answers", op, len(ps))
	}
	if err == nil {
		err = ps[0].Err
	}
	checkRefusal(l.w, l.right, op, err)
	return err
}

// ticketOfEachKind returns a ticket of each kind that the driver has, each on a
// queue of its own.
func (l *restrictedUser) ticketOfEachKind(part string) []*driver.Ticket {
	var ts []*driver.Ticket
	add := func(t *driver.Ticket) {
		l.shortLived(t)
		ts = append(ts, t)
		l.names = append(l.names, t.Name)
	}
	add(l.mutex(part + "mutex"))
	if l.w.traits.Shared {
		add(l.reader(part + "reader"))
		add(l.ticket(part+"units", 2, 3))
	}
	if l.w.traits.Owner {
		t := l.mutex(part + "owner")
		t.Owner = "owner"
		add(t)
	}
	return ts
}

// checkFreed checks that the queues of clients that lack a right, and send
// nothing any more, become free for others in time.
func (w *world) checkFreed(all []*restrictedUser) {
	w.Helper()
	o := w.client()
	begun := time.Now()
	var refs []driver.Ref
	lacks := make(map[string]string) // by id of the ticket that follows
	for _, l := range all {
		for _, name := range l.names {
			limit := int64(1)
			switch {
			case strings.HasSuffix(name, "reader"):
				limit = driver.RWLimit
			case strings.HasSuffix(name, "units"):
				limit = 3
			}
			t := o.ticket(strings.TrimPrefix(name, w.tag), limit, limit)
			lacks[t.ID] = fmt.Sprintf("%s (line %s)", l.right, strings.TrimPrefix(name, w.tag))
			ctx, cancel := w.limit()
			p, err := o.d.Join(ctx, t, true)
			cancel()
			if err != nil {
				w.Errorf("after a user without %s, others get: %v", lacks[t.ID], err)
			} else if p.State != driver.Held {
				refs = append(refs, driver.Ref{Ticket: t, State: driver.Waiting})
			}
		}
	}
	for len(refs) > 0 {
		asked := time.Now()
		var left []driver.Ref
		for i, p := range o.renewAll(refs) {
			if p.State != driver.Held {
				left = append(left, refs[i])
			}
		}
		refs = left
		if late := asked.Sub(begun); len(refs) > 0 && w.still.exceed(late, w.latestExpiry(w.h.TTL), begun) {
			for _, r := range refs {
				w.Errorf("a user without %s keeps others out %v after its last request, with a TTL of %v", lacks[r.ID], asked.Sub(begun).Round(time.Millisecond), w.h.TTL)
			}
			break
		}
		time.Sleep(w.pollInterval())
	}
	for _, t := range o.all() {
		o.leaveAnyway(t)
	}
	for _, l := range all {
		for _, t := range l.all() {
			l.forget(t)
		}
	}
	if w.h.Rights.Unexpiring != nil {
		for _, x := range w.h.Rights.Unexpiring(w.T) {
			w.Errorf("something without an end stays at the store: %s", x)
		}
	}
}

// queueForRefusal is a queue that a user without a right joins.
type queueForRefusal struct {
	t      *driver.Ticket // of the user
	holder *driver.Ticket // of another client; nil for a free queue
	err    error          // of the user's Join
}

// queuesForRefusal returns queues of each kind: free ones, some with a holder, and
// some with a holder and a waiter whose time will be over, which a Join drops.
func (l *restrictedUser) queuesForRefusal(o *client, part string) (qs []*queueForRefusal) {
	l.w.Helper()
	for _, state := range []string{"free ", "held ", "dead "} {
		for _, t := range l.ticketOfEachKind(part + state) {
			t.TTL = l.w.longTTL()
			q := &queueForRefusal{t: t}
			name := strings.TrimPrefix(t.Name, l.w.tag)
			if state != "free " {
				q.holder = o.ticket(name, t.Limit, t.Limit)
				o.join(q.holder, driver.Held)
			}
			if state == "dead " {
				o.join(o.shortLived(o.ticket(name, t.Units, t.Limit)), driver.Waiting)
			}
			qs = append(qs, q)
		}
	}
	return qs
}

// joinForRefusal joins the queues, all at once: a driver whose pushes are refused may
// let each Join wait for them.
func (l *restrictedUser) joinForRefusal(qs []*queueForRefusal) {
	l.w.Helper()
	var joins sync.WaitGroup
	for _, q := range qs {
		joins.Go(func() {
			ctx, cancel := l.w.limit()
			defer cancel()
			_, q.err = l.d.Join(ctx, q.t, true)
			for q.err != nil && driver.ClassOf(q.err) == driver.NotDone && ctx.Err() == nil {
				_, q.err = l.d.Join(ctx, q.t, true)
			}
		})
	}
	joins.Wait()
	for _, q := range qs {
		checkRefusal(l.w, l.right, "Join", q.err)
	}
}

// checkRefusedLeavesNothing checks that a Join which was refused keeps nobody out.
func (w *world) checkRefusedLeavesNothing(l *restrictedUser, o *client, q *queueForRefusal) {
	w.Helper()
	if q.err == nil {
		o.breakAny(q.t)
	}
	if q.holder != nil {
		o.leave(q.holder, driver.Held)
	}
	name := strings.TrimPrefix(q.t.Name, w.tag)
	next := o.ticket(name, q.t.Limit, q.t.Limit)
	for begun := time.Now(); q.err != nil && o.joinWith(next, false).State != driver.Held; time.Sleep(w.pollInterval()) {
		if took := time.Since(begun); w.still.exceed(took, w.h.TTL+w.h.Slack, begun) {
			w.Errorf("a Join that was refused without %s keeps others out of %s: the queue is %s", l.right, name, formatQueue(w.queueOf(q.t.Name)))
			break
		}
	}
	o.leaveAnyway(next)
}

// leaveAnyway leaves and ignores the error.
func (c *client) leaveAnyway(t *driver.Ticket) {
	ctx, cancel := c.w.limit()
	defer cancel()
	if c.leaveQuietly(ctx, t) == nil {
		c.forget(t)
	}
}

// checkFindings checks that Check names the missing right.
func (l *restrictedUser) checkFindings() {
	l.w.Helper()
	c, ok := l.d.(driver.Checker)
	if !ok {
		return
	}
	ctx, cancel := l.w.limit()
	defer cancel()
	fs, err := c.Check(ctx)
	var said strings.Builder
	if err != nil {
		fmt.Fprintf(&said, "%v; ", err)
	}
	for _, f := range fs {
		if f.Level != driver.OK {
			fmt.Fprintf(&said, "%s: %s: %s; ", f.Topic, f.Detail, f.Advice)
		}
	}
	checkNamesRight(l.w, l.right, said.String())
}

var rightsCases = []Case{
	{Name: "rights-lacking", Rules: "Driver 5, Checker, F114", Needs: HasRights, Alone: true, run: func(w *world) {
		// A user who lacks one of the rights is served or refused. The user's
		// tickets end with their TTL, and Check names the right.
		var all []*restrictedUser
		for i, right := range w.h.Rights.Needed {
			c := w.openAs(w.h.Rights.User(w.T, right), right)
			if c == nil {
				continue
			}
			l := &restrictedUser{client: c, right: right}
			all = append(all, l)
			ctx, cancel := w.limit()
			checkRefusal(w, right, "Watch", c.d.Watch(ctx, func(string, driver.Status) {}))
			cancel()
			for _, t := range l.ticketOfEachKind(fmt.Sprintf("%d left ", i)) {
				l.use(t, true)
			}
			for _, t := range l.ticketOfEachKind(fmt.Sprintf("%d dead ", i)) {
				l.use(t, false)
			}
		}
		w.checkFreed(all)
		for _, l := range all {
			l.checkFindings()
		}
	}},
	{Name: "rights-refused", Rules: "Driver 5, F114", Needs: HasRights, Alone: true, run: func(w *world) {
		// A Join of a user who lacks a right is carried out, or leaves nothing: the
		// next client holds as soon as the holder has left, and need not wait until
		// the refused ticket's time is over. No Leave follows a refused Join.
		o := w.client()
		type userAndQueues struct {
			*restrictedUser
			queues []*queueForRefusal
		}
		var all []userAndQueues
		begun := time.Now()
		for i, right := range w.h.Rights.Needed {
			if c := w.openAs(w.h.Rights.User(w.T, right), right); c != nil {
				l := &restrictedUser{client: c, right: right}
				checkRefusal(w, right, "Watch", c.watchOnce()) // a place that nobody hears may be passed over
				all = append(all, userAndQueues{l, l.queuesForRefusal(o, fmt.Sprintf("%d ", i))})
				begun = time.Now()
			}
		}
		time.Sleep(time.Until(begun.Add(w.latestExpiry(w.h.TTL))))
		refused := 0
		for _, u := range all {
			u.joinForRefusal(u.queues)
			for _, q := range u.queues {
				w.checkRefusedLeavesNothing(u.restrictedUser, o, q)
				if q.err != nil {
					refused++
				}
			}
		}
		w.Logf("%d Joins were refused", refused)
	}},
	{Name: "rights-withdrawn", Rules: "Driver 5, F114", Needs: HasRights, Alone: true, run: func(w *world) {
		// A right is revoked from a user who holds and waits. The user's requests
		// are carried out or refused, and other clients are granted when its TTL is
		// over. Tickets granted by its releases end with their own TTL.
		var all []*restrictedUser
		o := w.client()
		for i, right := range w.h.Rights.Needed {
			u := w.h.Rights.User(w.T)
			if u.Revoke == nil {
				w.Logf("rights are looked at only when a client opens")
				return
			}
			c := w.openAs(u, right)
			if c == nil {
				continue
			}
			c.watch()
			l := &restrictedUser{client: c, right: right}
			all = append(all, l)
			left, dead := l.ticketOfEachKind(fmt.Sprintf("%d left ", i)), l.ticketOfEachKind(fmt.Sprintf("%d dead ", i))
			for _, t := range append(left[:len(left):len(left)], dead...) {
				c.join(t, driver.Held)
			}
			before := o.mutex(fmt.Sprintf("%d waits mutex", i))
			o.join(before, driver.Held)
			waits := c.shortLived(c.mutex(fmt.Sprintf("%d waits mutex", i)))
			c.join(waits, driver.Waiting)
			l.names = append(l.names, waits.Name)
			var heads []*driver.Ticket
			for _, next := range o.waitersOfEachKind(fmt.Sprint(i)) {
				head := c.mutex(strings.TrimPrefix(next.Name, w.tag))
				c.join(head, driver.Held)
				o.join(next, driver.Waiting)
				heads, l.names = append(heads, head), append(l.names, head.Name)
			}

			u.Revoke(w.T, right)
			for _, t := range left {
				_ = l.request("Renew", t, l.renewRefs)
				_ = l.request("Leave", t, l.leaveRefs)
			}
			_ = l.request("Renew", waits, l.renewRefs)
			for _, t := range dead {
				_ = l.request("Renew", t, l.renewRefs)
			}
			o.leave(before, driver.Held)
			for _, t := range heads {
				// A driver may end the session of a client whose Leave was refused,
				// and the ticket with it.
				if err := l.request("Leave", t, l.leaveRefs); err != nil || w.h.Rights.Majority {
					o.breakAny(t)
				}
				l.forget(t)
			}
			for _, t := range l.ticketOfEachKind(fmt.Sprintf("%d late ", i)) {
				l.use(t, true)
			}
		}
		w.checkFreed(all)
	}},
}
