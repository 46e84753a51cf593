package lockclient

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// batch is the number of ids that a server takes in one request.
const batch = 100

// Join asks for the lock, or where the id stands.
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := d.ready(ctx); err != nil {
		return driver.Status{}, err
	}
	id, err := d.records.idOf(t.ID)
	if err != nil {
		return driver.Status{}, err
	}
	r := recordOf(t)
	again := r != nil
	if r == nil {
		r = new(record)
		t.DriverData = r
	}
	late := d.records.hasLeft(t.ID, r) // the server says that it is gone
	if t.Replaces != nil && !late {
		left, err := d.Leave(ctx, []driver.Ref{{Ticket: t.Replaces, State: driver.Held}})
		if err == nil {
			err = left[0].Err
		}
		if err != nil {
			return driver.Status{}, err
		}
	}
	body := acquireBody(id, t)
	if wait {
		body["wait_ms"] = 0
	} else {
		body["try"] = true
	}
	if !late {
		d.records.expect(t)
	}
	var st driver.Status
	a, err := d.acquire(ctx, t, r, body)
	if err == nil {
		st, err = d.joined(ctx, t, r, a)
	}
	if st.State == driver.Gone || err != nil && driver.ClassOf(err) == driver.Refused {
		d.records.end(t.ID)
	}
	switch {
	case err != nil:
		return driver.Status{}, err
	case !wait && st.State == driver.Waiting:
		return d.giveUp(ctx, t, st)
	case again && st.State == driver.Held: // the answer has the rest of the claim
		return d.renewed(ctx, t, r, a.Server, st)
	}
	return st, nil
}

// acquire sends an acquire about a ticket.
func (d *Driver) acquire(ctx context.Context, t *driver.Ticket, r *record, body map[string]any) (*answer, error) {
	sent := time.Now()
	a, err := d.servers.askInTurn(ctx, t.TTL, "/v1/acquire", body)
	if err != nil {
		d.records.note(r, nil, nil, sent, err)
		return nil, err
	}
	d.records.note(r, a, &a.entry, sent, nil)
	return a, nil
}

// joined returns the status of an acquire's answer.
func (d *Driver) joined(ctx context.Context, t *driver.Ticket, r *record, a *answer) (driver.Status, error) {
	switch {
	case a.status == http.StatusOK || a.status == http.StatusAccepted:
		return d.status(ctx, t, r, &a.entry)
	case a.Code == "held":
		return driver.Status{State: driver.Gone, Ahead: -1, Holder: a.Holder.text(), Recheck: milliseconds(a.HolderLeft)}, nil
	case a.Code == "kind_mismatch":
		have, err := d.Inspect(ctx, t.Name)
		if err != nil || have.Limit == t.Limit {
			return driver.Status{}, driver.Errorf(driver.NotDone, "the lock server answers kind_mismatch: %s", a.Detail)
		}
		return driver.Status{}, &driver.LimitError{Name: t.Name, Have: have.Limit, Want: t.Limit}
	case a.Code == "lost" || a.Code == "released":
		return driver.Status{State: driver.Gone, Ahead: -1}, nil
	}
	return driver.Status{}, a.problem(a.status, a.after)
}

// status returns the status of an entry with a state.
func (d *Driver) status(ctx context.Context, t *driver.Ticket, r *record, e *entry) (driver.Status, error) {
	st := driver.Status{Lease: milliseconds(e.Left), Ahead: -1, Holder: e.Holder.text()}
	switch {
	case e.State == "held" && isHandedOn(t, e.Token):
		_, err := d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
		return driver.Status{State: driver.Gone, Ahead: -1}, err
	case e.State == "held":
		st.State, st.Token = driver.Held, storeToken(e.Token)
		d.records.mu.Lock()
		r.token = e.Token
		d.records.forgetLocked(t.ID)
		d.records.mu.Unlock()
	case e.State == "waiting" && d.records.token(t.ID, r) != 0:
		return st, driver.Errorf(driver.Unknown, "the lock server has not heard of the grant yet")
	case e.State == "waiting" && e.Left > 0:
		st.State = driver.Waiting
		if e.Ahead != nil {
			st.Ahead = *e.Ahead
		}
		d.records.mu.Lock()
		r.waits = true
		d.records.mu.Unlock()
	case e.State == "waiting":
		return st, driver.Errorf(driver.Unknown, "the lock server's store has not answered in time")
	default:
		return st, driver.Errorf(driver.Unknown, "an answer of the lock server without a state")
	}
	return st, nil
}

// giveUp ends the place of a ticket that must not wait.
func (d *Driver) giveUp(ctx context.Context, t *driver.Ticket, st driver.Status) (driver.Status, error) {
	left, err := d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Waiting}})
	if err == nil {
		err = left[0].Err
	}
	return driver.Status{State: driver.Gone, Ahead: -1, Holder: st.Holder}, err
}

// renewed renews a ticket that a server has found to hold. Without an answer the rest of
// that server's claim counts, unless the claim on the place is another's.
func (d *Driver) renewed(ctx context.Context, t *driver.Ticket, r *record, server string, found driver.Status) (driver.Status, error) {
	sts, err := d.Renew(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
	switch {
	case err == nil && sts[0].Err == nil:
		return sts[0], nil
	case !d.records.keeps(r, server):
		return driver.Status{}, driver.Errorf(driver.Unknown, "the lock server has not confirmed the grant: %w", errors.Join(err, errOf(sts)))
	}
	return found, nil
}

func errOf(sts []driver.Status) error {
	if len(sts) == 0 {
		return nil
	}
	return sts[0].Err
}

// Renew renews tickets, up to 100 in a request.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.inBatches(ctx, refs, d.renewBatch)
}

// inBatches calls send for parts of refs. Only an error of the first part is the call's
// own, which means that nothing was sent.
func (d *Driver) inBatches(ctx context.Context, refs []driver.Ref, send func(context.Context, []driver.Ref, []string) ([]driver.Status, error)) ([]driver.Status, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	ids := make([]string, len(refs))
	for i, ref := range refs {
		var err error
		if ids[i], err = d.records.idOf(ref.ID); err != nil {
			return nil, err
		}
	}
	all := make([]driver.Status, 0, len(refs))
	for len(refs) > 0 {
		n := min(batch, len(refs))
		sts, err := send(ctx, refs[:n], ids[:n])
		for i := range n {
			if err != nil {
				sts = append(sts, driver.Status{Err: err})
			}
			all = append(all, sts[i])
		}
		refs, ids = refs[n:], ids[n:]
	}
	return all, nil
}

func (d *Driver) renewBatch(ctx context.Context, refs []driver.Ref, ids []string) ([]driver.Status, error) {
	ttl := refs[0].TTL
	for _, ref := range refs {
		ttl = min(ttl, ref.TTL)
	}
	sent := time.Now()
	a, err := d.servers.askInTurn(ctx, ttl, "/v1/renew", map[string]any{"holds": ids})
	a, err = d.checkBatch(refs, a, err)
	if err != nil {
		return nil, err
	}
	sts := make([]driver.Status, len(refs))
	for i, ref := range refs {
		d.records.note(recordOf(ref.Ticket), a, &a.Holds[i], sent, nil)
		sts[i], err = d.renewedEntry(ctx, ref.Ticket, a.Server, &a.Holds[i])
		if err != nil {
			sts[i] = driver.Status{Err: err}
		}
		if sts[i].State == driver.Gone {
			d.records.end(ref.ID)
		}
	}
	return sts, nil
}

// checkBatch checks that the answer to a request about refs has an entry for each, and
// notes an error.
func (d *Driver) checkBatch(refs []driver.Ref, a *answer, err error) (*answer, error) {
	switch {
	case err != nil:
	case a.status != http.StatusOK:
		err = a.problem(a.status, a.after)
	case len(a.Holds) != len(refs):
		err = driver.Errorf(driver.Unknown, "the lock server's answer has %d holds, and the request %d", len(a.Holds), len(refs))
	default:
		return a, nil
	}
	for _, ref := range refs {
		d.records.note(recordOf(ref.Ticket), nil, nil, time.Time{}, err)
	}
	return nil, err
}

// renewedEntry returns the status of a renewal's entry.
func (d *Driver) renewedEntry(ctx context.Context, t *driver.Ticket, server string, e *entry) (driver.Status, error) {
	r := recordOf(t)
	switch {
	case r != nil && (e.Code == "unknown_hold" || e.State == "waiting" && d.records.token(t.ID, r) != 0):
		return d.goOn(ctx, t, r, server)
	case e.Code == "unknown_hold" || e.Code == "lost" || e.Code == "released":
		return driver.Status{State: driver.Gone, Ahead: -1}, nil
	case e.Code != "":
		return driver.Status{}, e.problem(e.statusOf(), 0)
	case r == nil:
		r = new(record)
	}
	found := !d.records.isKnown(r) && !d.records.keeps(r, server)
	st, err := d.status(ctx, t, r, e)
	if err == nil && st.State == driver.Held && found { // the entry may have the rest of the claim
		return d.renewed(ctx, t, r, server, st)
	}
	return st, err
}

// goOn asks to go on with a ticket that a server does not know, or whose grant it has not
// heard of: a hold is resumed, for the store alone can say that it is gone. A place in the
// queue is asked for if that server never had it, as another one that a balancer may
// choose now; one that had it has given it up.
func (d *Driver) goOn(ctx context.Context, t *driver.Ticket, r *record, server string) (driver.Status, error) {
	d.records.mu.Lock()
	token, waits, leaving := d.records.tokenLocked(t.ID, r), r.waits && (!slices.Contains(r.had, server) || r.keeper != server), r.leaving
	d.records.mu.Unlock()
	id, err := d.records.idOf(t.ID)
	if err != nil {
		return driver.Status{}, err
	}
	if leaving {
		return driver.Status{State: driver.Gone, Ahead: -1}, nil
	}
	if token == 0 && !waits {
		return d.drop(ctx, t, r)
	}
	known := d.records.isKnown(r)
	body := acquireBody(id, t)
	body["wait_ms"] = 0
	if token != 0 {
		body["resume"] = token
	}
	a, err := d.acquire(ctx, t, r, body)
	if err != nil {
		return driver.Status{}, err
	}
	st, err := d.joined(ctx, t, r, a)
	if err == nil && st.State == driver.Held && token == 0 { // the answer has the rest of the claim
		return d.renewed(ctx, t, r, a.Server, st)
	}
	if err == nil && st.State == driver.Held && token != 0 && st.Token != storeToken(token) {
		return driver.Status{State: driver.Gone, Ahead: -1}, nil
	}
	if err == nil && st.State == driver.Held && !known && !d.records.keeps(r, a.Server) {
		return d.renewed(ctx, t, r, a.Server, st)
	}
	return st, err
}

// drop gives up a place in the queue that a server has given up, wherever else it is. If an
// event tells at the same time that it holds, it is not given up.
func (d *Driver) drop(ctx context.Context, t *driver.Ticket, r *record) (driver.Status, error) {
	d.records.mu.Lock()
	if d.records.tokenLocked(t.ID, r) != 0 {
		d.records.mu.Unlock()
		return driver.Status{}, driver.Errorf(driver.Unknown, "the ticket was granted meanwhile: ask again")
	}
	d.records.dropLocked(t.ID)
	r.moved = true
	d.records.mu.Unlock()
	_, err := d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Waiting}}) // else its lease ends
	if err != nil && driver.ClassOf(err) == driver.Refused {
		return driver.Status{}, err
	}
	return driver.Status{State: driver.Gone, Ahead: -1}, nil
}

// Leave releases tickets, up to 100 in a request.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.inBatches(ctx, refs, d.leaveBatch)
}

func (d *Driver) leaveBatch(ctx context.Context, refs []driver.Ref, ids []string) ([]driver.Status, error) {
	holds := make([]map[string]any, len(refs))
	d.records.mu.Lock()
	for i, ref := range refs {
		holds[i] = map[string]any{"id": ids[i], "name": ref.Name}
		r := recordOf(ref.Ticket)
		if ref.JoinPending || r == nil || r.moved {
			holds[i]["moved"] = true
		}
		if r != nil {
			r.leaving = true
			r.token = d.records.tokenLocked(ref.ID, r)
			d.records.endLocked(ref.ID) // this Leave may be the last request about it
		} else if ref.JoinPending { // its Join may come yet
			d.records.dropLocked(ref.ID)
		}
	}
	d.records.mu.Unlock()
	// One server alone: the core has to know that an answer was missed, since the next one
	// says gone if that request was carried out.
	sent := time.Now()
	a, err := d.servers.ask(ctx, http.MethodPost, releasePath, map[string]any{"holds": holds})
	a, err = d.checkBatch(refs, a, err)
	if err != nil {
		return nil, err
	}
	sts := make([]driver.Status, len(refs))
	for i, ref := range refs {
		d.records.note(recordOf(ref.Ticket), a, &a.Holds[i], sent, nil)
		sts[i] = d.left(ref, &a.Holds[i])
	}
	return sts, nil
}

// left returns the status of a release's entry.
func (d *Driver) left(ref driver.Ref, e *entry) driver.Status {
	switch {
	case e.Code != "":
		return driver.Status{Err: e.problem(e.statusOf(), 0)}
	case e.Result == "gone":
		return driver.Status{State: driver.Gone, Ahead: -1}
	case e.Result != "released":
		return driver.Status{Err: driver.Errorf(driver.Unknown, "the lock server's store has not confirmed the release")}
	}
	r := recordOf(ref.Ticket)
	d.records.mu.Lock()
	defer d.records.mu.Unlock()
	st := driver.Status{State: driver.Waiting, Ahead: -1}
	switch {
	case r == nil || r.left: // it never joined, or an earlier answer said so
		st.State = driver.Gone
		return st
	case d.records.tokenLocked(ref.ID, r) != 0:
		st.State = driver.Held
	}
	r.left = true
	return st
}
