package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// session is one session with the ensemble: all tickets of one TTL live in it.
// When it expires the library makes a new one; the tickets of the old one are
// gone then.
type session struct {
	d     *Driver
	conn  *zk.Conn
	tap   *Tap
	users bool // the user's connection: not to be closed
	ended <-chan zk.Event
	first chan struct{} // closed when there has been a session
	known chan struct{} // closed when the server has been told who we are
	wrong error         // why it will not have us; after known

	// Fixed once the server has answered.
	stop chan struct{}
	done sync.WaitGroup

	mu        sync.Mutex
	id        int64
	connected bool
	epoch     int // counts connections: what was seen in an older one has to be looked at again
	timeout   time.Duration
	confirmed time.Time // of what is known to have reached the leader, see beat
	touches   []touch
	mark      string // path of the session's own node, "" when it has to be made
	zxid      int64  // of the last known transaction of that node
	recs      map[string]*record
	byPath    map[string]*record
	watchers  map[string]map[*record]bool // by the path they wait for
	queue     []task
	bell      chan struct{}

	marking sync.Mutex // held while the session's own node is made
	slots   chan struct{}
}

// touch is a request that the server has answered.
type touch struct {
	sent, answered time.Time
	epoch          int
}

// task is something to be done after an event, outside of the library's
// goroutine.
type task struct {
	settle *record
	id     string
	place  driver.Place
	gap    bool
}

func newSession(d *Driver, tap *Tap) *session {
	return &session{
		d: d, tap: tap,
		first:    make(chan struct{}),
		known:    make(chan struct{}),
		stop:     make(chan struct{}),
		recs:     make(map[string]*record),
		byPath:   make(map[string]*record),
		watchers: make(map[string]map[*record]bool),
		bell:     make(chan struct{}, 1),
		slots:    make(chan struct{}, 16),
	}
}

// dial opens a session with a time-out to ask for. It does not wait for it.
func (d *Driver) dial(ask time.Duration) (*session, error) {
	tap := NewTap(d.opts.Dial)
	s := newSession(d, tap)
	tap.listen(s.event)
	conn, events, err := zk.Connect(d.servers, ask,
		zk.WithDialer(tap.Dial), zk.WithEventCallback(tap.Event),
		zk.WithHostProvider(&hosts{tap: tap}), zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	s.conn, s.ended = conn, events
	if d.opts.User == "" {
		close(s.known)
	} else {
		s.done.Go(s.introduce)
	}
	return s, nil
}

// introduce tells the server the user. The library repeats it for each further
// connection, before anything else is sent.
func (s *session) introduce() {
	defer close(s.known)
	for {
		select {
		case <-s.first:
		case <-s.stop:
			return
		}
		// It blocks until there is a connection.
		s.wrong = s.conn.AddAuth("digest", []byte(s.d.opts.User+":"+s.d.opts.Password))
		if s.wrong == nil || errors.Is(s.wrong, zk.ErrAuthFailed) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.stop:
			return
		}
	}
}

func (s *session) up() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

// serve starts the session's goroutines: one for what follows from events, and
// one that keeps the session's promise fresh.
func (s *session) serve() {
	s.done.Go(s.work)
	s.done.Go(s.beat)
}

// ready waits for the session's first connection.
func (s *session) ready(ctx context.Context) error {
	for _, step := range []chan struct{}{s.first, s.known} {
		select {
		case <-step:
			continue
		default:
		}
		select {
		case <-step:
		case <-s.stop:
			return driver.ErrClosed
		case <-ctx.Done():
			if err := s.tap.trouble(); err != nil {
				return driver.Errorf(driver.Unavailable, "%w: %w", context.Cause(ctx), err)
			}
			return &driver.Error{Class: driver.Unavailable, Err: context.Cause(ctx)}
		}
	}
	if s.wrong != nil {
		return driver.Errorf(driver.Refused, "the server does not accept user %s: %w", s.d.opts.User, s.wrong)
	}
	if !s.up() {
		return s.away()
	}
	return nil
}

// close ends the session. With abandon the server is not told: the tickets in
// it stay until their time is over.
func (s *session) close(abandon bool) {
	close(s.stop)
	if s.users {
		s.tap.listen(nil)
	} else {
		if abandon || !s.up() {
			s.tap.cut()
		}
		s.conn.Close()
		s.tap.cut()
		for range s.ended { // closed when the library's goroutines have ended
		}
	}
	s.done.Wait()
}

// event takes what the library reports, on the library's own goroutine and
// before it delivers any answer that the server sent later. It must not block.
func (s *session) event(ev zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ev.Type {
	case zk.EventSession:
		s.turned(ev.State)
	case zk.EventNodeDeleted:
		if r := s.byPath[ev.Path]; r != nil {
			s.vanished(r)
		}
		s.wake(ev.Path, true)
	case zk.EventNodeDataChanged:
		if r := s.byPath[ev.Path]; r != nil {
			r.watched = false // a watch serves once
		}
		s.wake(ev.Path, false)
	case zk.EventNodeChildrenChanged:
		s.wake(childKey(ev.Path), false)
	}
}

// turned: the connection's state has changed.
func (s *session) turned(state zk.State) {
	switch state {
	case zk.StateHasSession:
		id, timeout, since := s.tap.granted()
		s.timeout = timeout
		// The server asks the leader before it takes over a session, and the
		// leader makes new ones: either way it counts from after since.
		s.confirmed = since
		s.touches = nil
		again := s.id != 0
		s.id = id
		s.connected = true
		if again {
			s.push(task{gap: true})
		}
		select {
		case <-s.first:
		default:
			close(s.first)
		}
	case zk.StateDisconnected:
		if s.connected {
			s.connected = false
			s.epoch++
			s.touches = nil
		}
	case zk.StateExpired:
		s.connected = false
		s.epoch++
		s.mark = ""
		for _, r := range s.recs {
			s.vanished(r)
		}
	}
}

// vanished: the record's node is gone, and so is the ticket.
func (s *session) vanished(r *record) {
	delete(s.byPath, r.path)
	s.unwatch(r)
	if r.state == driver.Gone || r.path == "" {
		return
	}
	r.state = driver.Gone
	if !r.left {
		s.d.bury(r.uuid)
		s.push(task{id: r.id, place: driver.Place{State: driver.Gone}})
	}
}

// wake: what these waited for has happened.
func (s *session) wake(path string, deleted bool) {
	for r := range s.watchers[path] {
		delete(s.watchers[path], r)
		r.target = ""
		switch {
		case r.state != driver.Waiting || r.left:
		case deleted && r.alone:
			r.state = driver.Held
			s.push(task{id: r.id, place: driver.Place{State: driver.Held, Token: r.token}})
		default:
			r.moved++
			s.push(task{settle: r})
		}
	}
	delete(s.watchers, path)
}

func (s *session) watch(r *record, key string, alone bool) {
	s.unwatch(r)
	m := s.watchers[key]
	if m == nil {
		m = make(map[*record]bool, 1)
		s.watchers[key] = m
	}
	m[r] = true
	r.target, r.alone = key, alone
}

func (s *session) unwatch(r *record) {
	if m := s.watchers[r.target]; m != nil {
		delete(m, r)
		if len(m) == 0 {
			delete(s.watchers, r.target)
		}
	}
	r.target, r.alone = "", false
}

// push adds a task. The caller has s.mu.
func (s *session) push(t task) {
	s.queue = append(s.queue, t)
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// work does the tasks: pushes at once, and whatever takes a request beside.
func (s *session) work() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.bell:
		}
		s.mu.Lock()
		todo := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, t := range todo {
			switch {
			case t.gap:
				s.d.push("", driver.Place{})
			case t.settle != nil:
				s.aside(func() { s.resettle(t.settle) })
			default:
				s.d.push(t.id, t.place)
			}
		}
	}
}

// aside runs f on a goroutine of its own, at most 16 at once.
func (s *session) aside(f func()) {
	select {
	case s.slots <- struct{}{}:
	case <-s.stop:
		return
	}
	s.done.Go(func() {
		defer func() { <-s.slots }()
		f()
	})
}

// each calls f for all indices below n, several at once.
func each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var wait sync.WaitGroup
	next := make(chan int)
	for range min(n, 16) {
		wait.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}
