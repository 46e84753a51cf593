package lockserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// openStream is a stream under way.
type openStream struct {
	w     *world
	close func()
	out   *httptest.ResponseRecorder
	ended sync.WaitGroup
	path  string
}

// open begins a stream.
func (w *world) open(s http.Handler, r *http.Request) *openStream {
	ctx, cancel := context.WithCancel(bg)
	st := &openStream{w: w, close: cancel, out: httptest.NewRecorder(), path: r.URL.Path}
	r.Host = "127.0.0.1"
	st.ended.Go(func() { s.ServeHTTP(st.out, r.WithContext(ctx)) })
	synctest.Wait()
	return st
}

// events ends a stream and returns its events, each checked against the document.
func (st *openStream) events() (all []reply) {
	st.w.Helper()
	st.close()
	st.ended.Wait()
	for e := range strings.Lines(st.out.Body.String()) {
		r := reply{status: st.out.Code, raw: e}
		dec := json.NewDecoder(strings.NewReader(e))
		dec.UseNumber()
		if err := dec.Decode(&r.body); err != nil {
			st.w.Errorf("%q: %v", e, err)
			continue
		}
		for method := range theDocument.Paths[st.path] {
			for _, bad := range answerBreaches(method, st.path, r.status, st.out.Result().Header.Get("Content-Type"), r.body) {
				st.w.Errorf("%s: %s", bad, e)
			}
		}
		all = append(all, r)
	}
	return all
}

// names returns the names of events.
func names(events []reply) string {
	var all []string
	for _, e := range events {
		all = append(all, e.text("event"))
	}
	return strings.Join(all, " ")
}

func (w *world) openHold(s http.Handler, n int, name string, more ...string) *openStream {
	form := url.Values{"id": {id(n)}, "name": {name}, "ttl_ms": {"9000"}, "max_hold_ms": {"60000"}}
	for i := 0; i < len(more); i += 2 {
		form.Set(more[i], more[i+1])
	}
	return w.open(s, request("POST", "/v1/hold", asForm, form.Encode()))
}

// TestEventsOfAClient checks the events of one client's ids: a grant, a loss, beats, and
// nothing of another client's.
func TestEventsOfAClient(t *testing.T) {
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		st := w.open(s, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
		other := w.open(s, request("GET", "/v1/events?client=fedcba9876543210", "", ""))
		first := w.acquire(s, 1, "a")
		w.acquire(s, 2, "a", "wait_ms", "0")
		w.release(s, 1, "a")
		settle()
		info, err := c.Inspect(bg, "a")
		if err != nil || len(info.Holders) != 1 {
			t.Fatal(info, err)
		}
		if err := c.Break(bg, "a", info.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		events := st.events()
		if got := names(events); got != "flowing held held lost beat" {
			t.Fatal(got)
		}
		w.want("first", events[1], 200, "id", id(1), "token", first.text("token"))
		w.want("second", events[2], 200, "id", id(2))
		w.want("lost", events[3], 200, "id", id(2), "reason", "gone")
		if got := names(other.events()); got != "flowing beat" {
			t.Error(got)
		}
	})
}

// TestAttack8EventOfAGrantCountsAsSent checks attack 8: of a grant that an event told, the claim
// alone is the end.
func TestAttack8EventOfAGrantCountsAsSent(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		st := w.open(s, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
		w.acquire(s, 1, "a")
		w.acquire(s, 2, "a", "wait_ms", "0")
		w.release(s, 1, "a")
		next, begun := w.lockAfter("a"), time.Now()
		if at := <-next; at.Sub(begun) < 8890*time.Millisecond {
			t.Errorf("the next one held after %v", at.Sub(begun))
		}
		st.events()
	})
}

// TestHoldAsLongAsItsConnection checks the stream of a hold: its events, its renewals
// while it is read, and both ends.
func TestHoldAsLongAsItsConnection(t *testing.T) {
	for end, most := range map[string]time.Duration{"expire": 10 * time.Second, "release": 0} {
		bubble(t, func(w *world) {
			s := w.server()
			w.acquire(s, 1, "a")
			st := w.openHold(s, 2, "a", "on_close", end)
			time.Sleep(2 * time.Second)
			w.release(s, 1, "a")
			time.Sleep(30 * time.Second)
			w.want("a try", w.acquire(s, 3, "a", "try", "true"), 409, "code", "held")
			closed := time.Now()
			events := st.events()
			if at := <-w.lockAfter("a"); at.Sub(closed) > most {
				t.Errorf("%s: the next one held %v after the connection", end, at.Sub(closed))
			}
			if n := len(events); n < 30 || events[0].text("event") != "waiting" || events[n-1].text("event") != "held" {
				t.Errorf("%d events: %s", n, names(events))
			}
		})
	}
}

// TestHoldStreamEnds checks the last event of a stream whose hold is broken, released or
// at its bound, and what is refused before it begins.
func TestHoldStreamEnds(t *testing.T) {
	bubble(t, func(w *world) {
		s, c := w.server(), w.client()
		bounded := w.openHold(s, 1, "a", "max_hold_ms", "5000")
		broken := w.openHold(s, 2, "b")
		released := w.openHold(s, 3, "c")
		info, err := c.Inspect(bg, "b")
		if err != nil || len(info.Holders) != 1 {
			t.Fatal(info, err)
		}
		if err := c.Break(bg, "b", info.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		w.release(s, 3, "c")
		time.Sleep(6 * time.Second)
		for what, st := range map[string]*openStream{"lost max_hold": bounded, "lost gone": broken, "released": released} {
			st.ended.Wait()
			events := st.events()
			last := events[len(events)-1]
			event, reason, _ := strings.Cut(what, " ")
			if last.text("event") != event || reason != "" && last.text("reason") != reason {
				t.Errorf("%s: %s", what, last.raw)
			}
		}
		r := request("POST", "/v1/hold", asForm, "id="+id(4)+"&name=a&ttl_ms=9000&max_hold_ms=1000")
		r.Header.Set("Via", "1.1 proxy")
		w.want("by a proxy", w.send(s, r), 400, "code", "unsupported")
		w.acquire(s, 5, "d")
		w.want("a try", w.post(s, "/v1/hold", "id", id(6), "name", "d", "ttl_ms", "9000", "max_hold_ms", "9000", "try", "true"), 409, "code", "held")
		w.release(s, 5, "d")
	})
}

// TestAttack21SlowReaderIsCutOff checks attack 21: a client that does not read loses its stream
// after the bound of one write, and the server goes on.
func TestAttack21SlowReaderIsCutOff(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		client, conn := net.Pipe()
		l := &oneConn{conn: conn, done: make(chan struct{})}
		hs := &http.Server{Handler: s}
		var serving sync.WaitGroup
		serving.Go(func() { _ = hs.Serve(l) })
		_, err := fmt.Fprintf(client, "GET /v1/events?client=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", clientOf(id(1)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReaderSize(client, 16).ReadByte(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(beatInterval + 2*ioTimeout)
		if n, polls := s.subscribers.count(), s.quota.total().polls; n != 0 || polls != 0 {
			t.Errorf("%d streams of a client that does not read, %d requests that wait", n, polls)
		}
		_ = client.Close()
		_ = hs.Close()
		serving.Wait()
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (c net.Conn, err error) {
	if c, l.conn = l.conn, nil; c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (*oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "test", Net: "unix"} }

// TestLocksAndPages checks one queue in detail, and names in pages.
func TestLocksAndPages(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		for i := range 5 {
			w.acquire(s, i, fmt.Sprintf("job/%d", i), "note", "n")
		}
		w.acquire(s, 10, "other")
		w.acquire(s, 11, "job/1", "wait_ms", "0")
		lock := w.get(s, "/v1/lock?name=job/1")
		w.want("lock", lock, 200, "name", "job/1", "kind", "mutex")
		if h, _ := lock.body["holders"].([]any); len(h) != 1 || strings.Contains(lock.raw, id(1)) {
			t.Error(lock.raw)
		}
		w.want("a free lock", w.get(s, "/v1/lock?name=free"), 200, "kind", "free")
		page := w.get(s, "/v1/locks?prefix=job/&limit=3")
		w.want("page", page, 200, "next", "job/2")
		page = w.get(s, "/v1/locks?prefix=job/&limit=3&after="+page.text("next"))
		if list, _ := page.body["locks"].([]any); len(list) != 2 || page.text("next") != "<nil>" {
			t.Error(page.raw)
		}
		for i := range 5 {
			w.release(s, i, fmt.Sprintf("job/%d", i))
		}
		w.release(s, 11, "job/1")
		w.release(s, 10, "other")
	})
}

// TestWatchShowsChanges checks the snapshot, changes, bookmarks, a watch that goes on
// from one, and that nobody scans where nobody watches.
func TestWatchShowsChanges(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "job/1")
		w.acquire(s, 2, "other")
		st := w.open(s, request("GET", "/v1/watch?prefix=job/", "", ""))
		second := w.open(s, request("GET", "/v1/watch", "", ""))
		time.Sleep(1500 * time.Millisecond)
		w.acquire(s, 3, "job/3")
		time.Sleep(1500 * time.Millisecond)
		w.release(s, 1, "job/1")
		time.Sleep(8 * time.Second)
		events := st.events()
		if got := names(events); got != "flowing lock bookmark lock free bookmark" && got != "flowing lock bookmark lock free bookmark free" {
			t.Fatal(got)
		}
		mark := events[2].text("after")
		again := w.open(s, request("GET", "/v1/watch?prefix=job/&after="+url.QueryEscape(mark), "", ""))
		synctest.Wait()
		if got := names(again.events()); !strings.HasPrefix(got, "flowing bookmark lock free") {
			t.Error(got)
		}
		w.want("a mark of another server", w.get(s, "/v1/watch?after=x:1"), 410, "code", "too_old")
		second.events()
		if s.scans.current != nil {
			t.Error("somebody scans")
		}
	})
}

// TestDrainHandsHoldsOver checks that a server that drains takes no new places, ends
// polls and streams, goes on with renewals, and keeps places that it detaches.
func TestDrainHandsHoldsOver(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.server(), w.server()
		first := w.acquire(a, 1, "a")
		events := w.open(a, request("GET", "/v1/events?client="+clientOf(id(1)), "", ""))
		var poll reply
		var group sync.WaitGroup
		group.Go(func() { poll = w.acquire(a, 2, "a") })
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		var drained error
		group.Go(func() { drained = a.Drain(ctx) })
		synctest.Wait()
		w.want("the poll", poll, 202, "state", "waiting", "draining", "true")
		if got := names(events.events()); got != "flowing draining" {
			t.Error(got)
		}
		w.want("ready", w.get(a, "/readyz"), 503, "code", "draining")
		w.want("health", w.get(a, "/healthz"), 200, "status", "ok")
		w.want("a new place", w.acquire(a, 3, "b"), 503, "code", "draining")
		w.want("events", w.get(a, "/v1/events?client="+clientOf(id(1))), 503, "code", "draining")
		w.want("watch", w.get(a, "/v1/watch"), 503, "code", "draining")
		w.want("renew", w.post(a, "/v1/renew", "id", id(1)), 200, "draining", "true")
		second := w.acquire(b, 2, "a", "wait_ms", "0")
		w.want("the place at the next server", second, 202, "state", "waiting", "ahead", "1")
		group.Wait()
		if drained == nil || !strings.Contains(drained.Error(), "1 holds and waits are left") {
			t.Errorf("Drain: %v", drained)
		}
		w.want("resume", w.acquire(b, 1, "a", "resume", first.text("token")), 200, "state", "held", "token", first.text("token"))
		w.want("release", w.release(b, 1, "a", "moved", "true"), 200, "result", "released")
		w.want("the turn", w.acquire(b, 2, "a"), 200, "state", "held")
		w.release(b, 2, "a", "moved", "true")
	})
}

// TestDrainDuringRenewal lets a hold go while the store takes its time over a renewal: its
// answer sends the client to another server, and calls the hold neither released nor lost.
func TestDrainDuringRenewal(t *testing.T) {
	bubble(t, func(w *world) {
		plan, err := faults.Parse("renew: hold request 1s")
		if err != nil {
			t.Fatal(err)
		}
		a, b := w.serverWith(w.clientOf(faults.Wrap(memlock.New(w.store), plan)), Options{}), w.server()
		first := w.acquire(a, 1, "a")
		var renewed reply
		var group sync.WaitGroup
		group.Go(func() { renewed = w.renew(a, 1) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := a.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		group.Wait()
		w.want("the renewal", renewed, 200, "status", "404", "code", "unknown_hold")
		w.want("resume", w.acquire(b, 1, "a", "resume", first.text("token")), 200, "state", "held", "token", first.text("token"))
		w.want("release", w.release(b, 1, "a", "moved", "true"), 200, "result", "released")
	})
}

// TestDrainOfAnIdleServerEndsAtOnce checks that Drain waits for holds only.
func TestDrainOfAnIdleServerEndsAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.acquire(s, 1, "a")
		time.AfterFunc(2*time.Second, func() { w.release(s, 1, "a") })
		asked := time.Now()
		for range 2 {
			if err := s.Drain(bg); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(asked); took != 2*time.Second {
			t.Errorf("Drain took %v", took)
		}
	})
}

// TestKindsAndPinnedHolds checks readers, writers, permits and pinned holds.
func TestKindsAndPinnedHolds(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.want("reader", w.acquire(s, 1, "rw", "kind", "read"), 200, "resumable", "true")
		w.want("reader", w.acquire(s, 2, "rw", "kind", "read", "pinned", "true"), 200, "resumable", "false")
		w.want("reader", w.acquire(s, 3, "rw", "kind", "read", "pinned", "true"), 200, "resumable", "false")
		w.want("writer", w.acquire(s, 4, "rw", "kind", "write", "try", "true"), 409, "code", "held")
		w.want("a mutex", w.acquire(s, 5, "rw", "try", "true"), 409, "code", "kind_mismatch")
		w.want("permits", w.acquire(s, 6, "sem", "kind", "permits", "permits", "2", "of", "3"), 200, "resumable", "false")
		w.want("too many", w.acquire(s, 7, "sem", "kind", "permits", "permits", "2", "of", "3", "try", "true"), 409, "code", "held")
		w.want("the last", w.acquire(s, 8, "sem", "kind", "permits", "of", "3"), 200, "state", "held")
		// Readers of one server share a ticket: the renewals of one keep no other.
		for range 4 {
			time.Sleep(4 * time.Second)
			w.want("renew", w.renew(s, 3), 200, "state", "held")
		}
		w.want("the other reader", w.renew(s, 2), 200, "status", "410", "code", "lost", "reason", "expired")
		w.want("release", w.release(s, 3, "rw"), 200, "result", "released")
		w.want("writer", w.acquire(s, 9, "rw", "kind", "write"), 200, "state", "held")
		time.Sleep(10 * time.Second)
		w.want("a pinned hold that is lost", w.acquire(s, 8, "sem", "kind", "permits", "of", "3"), 410, "code", "lost", "reason", "expired")
	})
}

// TestStoreWithoutOwners checks that every hold is pinned there, and says so.
func TestStoreWithoutOwners(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.serverWith(w.clientOf(ownerless{memlock.New(w.store)}), Options{})
		w.want("acquire", w.acquire(s, 1, "a"), 200, "resumable", "false")
		w.want("not pinned", w.acquire(s, 2, "b", "pinned", "false"), 400, "code", "unsupported")
		w.want("release", w.release(s, 1, "a"), 200, "result", "released")
	})
}

// ownerless is a store without named owners.
type ownerless struct{ *memlock.Driver }

func (d ownerless) Traits() holdfast.Traits {
	t := d.Driver.Traits()
	t.Owner = false
	return t
}

// TestHoldStreamGoesOnWithAHold opens the stream of a hold whose claim is nearly over, as a
// client does whose connection has broken: the server renews it first.
func TestHoldStreamGoesOnWithAHold(t *testing.T) {
	bubble(t, func(w *world) {
		s := w.server()
		w.want("acquire", w.acquire(s, 1, "a", "max_hold_ms", "60000"), 200, "state", "held")
		w.want("a longer hold", w.acquire(s, 2, "b"), 200, "state", "held")
		r := w.post(s, "/v1/hold", "id", id(2), "name", "b", "ttl_ms", "9000", "max_hold_ms", "60000")
		w.want("a stream that would not end it", r, 409, "code", "id_in_use")
		time.Sleep(8500 * time.Millisecond)
		st := w.openHold(s, 1, "a", "on_close", "release")
		time.Sleep(20 * time.Second)
		events := st.events()
		for _, e := range events {
			if w.want("an event", e, 200, "event", "held"); e.number("left_ms") < 5000 {
				t.Error(e.raw)
			}
		}
	})
}
