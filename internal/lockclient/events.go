package lockclient

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// silence ends a stream: a server sends a line every 10 s.
const silence = 25 * time.Second

// Watch passes the events of this driver's tickets on. It blocks until they flow.
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	opened := make(chan error, 1)
	d.mu.Lock()
	closed := d.servers.life.Err() != nil // since ready has looked
	if !closed {
		d.running.Go(func() { d.runEvents(ctx, notify, opened) })
	}
	d.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	select {
	case err := <-opened:
		return err
	case <-ctx.Done():
		return driver.Wrap(driver.NotDone, context.Cause(ctx))
	}
}

// runEvents receives events until ctx or the driver ends. The result of the first stream
// goes to opened.
func (d *Driver) runEvents(ctx context.Context, notify func(string, driver.Status), opened chan<- error) {
	ctx, end := d.servers.during(ctx)
	defer end()
	pause := backoff.Backoff{First: 100 * time.Millisecond, Last: 5 * time.Second, Jitter: true}
	first := true
	for ctx.Err() == nil {
		err := d.receive(ctx, func() {
			if first {
				opened <- nil
			} else {
				notify("", driver.Status{}) // events may be missing
			}
			first = false
			pause.Reset()
		}, notify)
		if first {
			opened <- err
			return
		}
		if err != nil && !pause.Wait(ctx) {
			return
		}
	}
	if first { // it ended before the first stream was asked for
		opened <- d.ready(ctx)
	}
}

// confirm asks to go on with a ticket of whose grant an event alone has told, and passes
// the answer on. Without one, the next renewal asks again.
func (d *Driver) confirm(ctx context.Context, t *driver.Ticket, notify func(string, driver.Status)) {
	ctx, cancel := context.WithTimeout(ctx, t.TTL/3)
	defer cancel()
	st, err := d.goOn(ctx, t, recordOf(t), "")
	if err == nil && st.State != driver.Waiting {
		st.Lease = 0 // no push extends a claim
		notify(t.ID, st)
	}
}

// receive reads the stream of the server whose turn it is, until it is another one's.
// flows is called when events flow.
func (d *Driver) receive(watching context.Context, flows func(), notify func(string, driver.Status)) error {
	ctx, cancel := context.WithCancel(watching)
	defer cancel()
	at, turned := d.servers.turnAndEnd()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	stopped := make(chan struct{})
	defer close(stopped)
	d.running.Go(func() {
		select {
		case <-turned:
			cancel()
		case <-stopped:
		}
	})
	r, err := d.servers.newRequest(ctx, at, http.MethodGet, "/v1/events?client="+url.QueryEscape(d.records.client), nil)
	if err != nil {
		return err
	}
	// The end of the watching says nothing about the server, and the tickets that the core
	// leaves then are there.
	resp, err := d.servers.http.Do(r)
	if err != nil {
		if watching.Err() == nil {
			d.servers.leaveServer(at)
		}
		return d.servers.failure(ctx, at, err)
	}
	defer resp.Body.Close()
	if err := d.servers.checkHead(at, resp); err != nil {
		d.servers.leaveServer(at)
		return err
	}
	server := ""
	scanner := bufio.NewScanner(resp.Body)
	for scanner.Scan() {
		watchdog.Reset(silence)
		var a answer
		if err := json.Unmarshal(scanner.Bytes(), &a); err != nil {
			return driver.Errorf(driver.Unknown, "lock server %s: an event that is no JSON", d.servers.names[at])
		}
		if resp.StatusCode != http.StatusOK {
			d.servers.leaveServer(at)
			return a.problem(resp.StatusCode, 0)
		}
		if err := d.servers.checkGroup(at, &a); err != nil {
			return err
		}
		switch id := d.records.ticketOf(a.ID); {
		case a.Event == "flowing":
			server = a.Server
			flows()
		case a.Event == "draining":
			d.servers.leaveServer(at)
		case id == "":
		case a.Event == "held":
			switch t, enough := d.records.onHeld(id, a.Token, server); {
			case t == nil:
			case enough:
				notify(id, driver.Status{State: driver.Held, Token: storeToken(a.Token), Ahead: -1})
			default:
				d.running.Go(func() { d.confirm(watching, t, notify) })
			}
		case a.Event == "lost" && !d.records.isAlone(id, server): // the next renewal tells
		case a.Event == "lost":
			d.records.end(id)
			notify(id, driver.Status{State: driver.Gone, Ahead: -1})
		}
	}
	select {
	case <-turned:
		return nil
	default:
	}
	if watching.Err() == nil {
		d.servers.leaveServer(at)
	}
	return driver.Errorf(driver.Unavailable, "lock server %s: its events have ended", d.servers.names[at])
}
