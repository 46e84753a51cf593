package zklock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// session is one session with the ensemble; all tickets of one TTL live in it.
// When the session expires, its tickets are gone, and the client library makes
// a new session.
type session struct {
	d     *Driver
	conn  *zk.Conn
	tap   *Tap
	users bool // the connection is the user's: not to be closed
	ended <-chan zk.Event
	first chan struct{} // closed once there has been a session
	known chan struct{} // closed when the server has been sent the user
	wrong error         // why the server refuses the user; read after known

	// Fixed once the server has answered.
	stop chan struct{}
	done sync.WaitGroup

	mu            sync.Mutex
	id            int64
	connected     bool
	epoch         int // counts connections: a node seen in an older one has to be read again
	timeout       time.Duration
	confirmed     time.Time // when the last request was sent that surely reached the leader, see heartbeat
	answeredSyncs []answeredSync
	syncTime      time.Duration   // the longest recent sync; decays with each sync
	mark          string          // path of the session's own node, "" when it has to be made
	zxid          int64           // the last known transaction of that node
	entries       map[*entry]bool // those of Driver.tickets that live in it
	byPath        map[string]*entry
	watchers      map[string]map[*entry]bool // the waiting entries, by the path that they watch
	queue         []task
	taskReady     chan struct{}

	marking sync.Mutex // held while the session's own node is made
	slots   chan struct{}
}

// answeredSync is a sync that the server has answered.
type answeredSync struct {
	sent, answered time.Time
	epoch          int
}

// task is work that follows an event, done outside the client library's
// goroutine.
type task struct {
	resolve *entry
	id      string
	place   driver.Status
	gap     bool
}

func newSession(d *Driver, tap *Tap) *session {
	return &session{
		d: d, tap: tap,
		first:     make(chan struct{}),
		known:     make(chan struct{}),
		stop:      make(chan struct{}),
		entries:   make(map[*entry]bool),
		byPath:    make(map[string]*entry),
		watchers:  make(map[string]map[*entry]bool),
		taskReady: make(chan struct{}, 1),
		slots:     make(chan struct{}, 16),
	}
}

// session returns the session for tickets of a TTL, and opens it when there is
// none.
func (d *Driver) session(ctx context.Context, ttl time.Duration) (*session, error) {
	if d.only != nil {
		return d.only, d.only.ready(ctx)
	}
	ask := timeoutFor(ttl, d.tick)
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, driver.ErrClosed
	}
	s := d.sessions[ask]
	if s == nil {
		var err error
		if s, err = d.dial(ask); err != nil {
			d.mu.Unlock()
			return nil, err
		}
		s.serve()
		d.sessions[ask] = s
	}
	d.mu.Unlock()
	return s, s.ready(ctx)
}

// any returns a session for requests that belong to no ticket.
func (d *Driver) any(ctx context.Context) (*session, error) {
	if d.only != nil {
		return d.only, d.only.ready(ctx)
	}
	d.mu.Lock()
	sessions := slices.Collect(maps.Values(d.sessions))
	d.mu.Unlock()
	for _, s := range sessions { // never under d.mu: session.mu is taken before Driver.mu
		if s.up() {
			return s, s.ready(ctx)
		}
	}
	return d.session(ctx, min(max(10*time.Second, d.traits.MinTTL), d.traits.MaxTTL))
}

// dial opens a session that asks for the time-out ask. It does not wait until
// the server has granted the session.
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

// introduce sends the user to the server. The client library repeats that on
// each further connection, before anything else is sent.
func (s *session) introduce() {
	defer close(s.known)
	for {
		select {
		case <-s.first:
		case <-s.stop:
			return
		}
		// AddAuth blocks until there is a connection.
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

// serve starts the session's goroutines: work does what follows from events,
// and heartbeat keeps the session's promise fresh.
func (s *session) serve() {
	s.tap.setSilenceLimit(s.silenceLimit)
	s.done.Go(s.work)
	s.done.Go(s.heartbeat)
}

// ready waits for the session's first connection, and until the server knows
// the user.
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
			if err := s.tap.trouble(); err != nil && s.d.opened() && notServing(err) {
				return driver.NotReady(0, "%w: %w", context.Cause(ctx), err)
			} else if err != nil {
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

// close ends the session. With abandon it does not tell the server: the tickets
// of the session stay until their time is over.
func (s *session) close(abandon bool) {
	close(s.stop)
	if s.users {
		s.tap.setSilenceLimit(nil)
		s.tap.listen(nil)
	} else {
		if abandon || !s.up() {
			s.tap.cut()
		}
		s.conn.Close()
		s.tap.cut()
		for range s.ended { // closed when the client library's goroutines have ended
		}
	}
	s.done.Wait()
}

// inUse reports whether the session has tickets that were not given up.
func (s *session) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.entries {
		if r.path != "" && !r.MustLeave && r.State != driver.Gone {
			return true
		}
	}
	return false
}

// event handles an event of the client library. It runs on the library's own
// goroutine, before the library delivers any answer that the server sent later.
// It must not block.
func (s *session) event(ev zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ev.Type {
	case zk.EventSession:
		s.onStateLocked(ev.State)
	case zk.EventNodeDeleted:
		if r := s.byPath[ev.Path]; r != nil {
			r.vanishedLocked()
		}
		s.wakeLocked(ev.Path, true)
	case zk.EventNodeDataChanged:
		if r := s.byPath[ev.Path]; r != nil {
			r.watched = false // a watch fires only once
		}
		s.wakeLocked(ev.Path, false)
	case zk.EventNodeChildrenChanged:
		s.wakeLocked(childKey(ev.Path), false)
	}
}

// onStateLocked handles a change of the connection's state.
func (s *session) onStateLocked(state zk.State) {
	switch state {
	case zk.StateHasSession:
		id, timeout, since := s.tap.granted()
		s.timeout = timeout
		// The server asks the leader before it takes over a session, and the
		// leader itself makes new sessions: either way the time-out began after
		// since.
		s.confirmed = since
		s.answeredSyncs = nil
		again := s.id != 0
		s.id = id
		s.connected = true
		if again {
			s.pushLocked(task{gap: true})
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
			s.answeredSyncs = nil
			s.d.disconnected()
		}
	case zk.StateExpired:
		s.connected = false
		s.epoch++
		s.mark = ""
		for r := range s.entries {
			r.vanishedLocked()
		}
	}
}

// vanishedLocked notes that the entry's node is gone, and the ticket with it.
func (r *entry) vanishedLocked() {
	delete(r.s.byPath, r.path)
	r.unwatch()
	if r.path != "" && r.Push(driver.Status{State: driver.Gone}) && !r.MustLeave {
		r.s.d.addTombstone(r.uuid)
		r.s.pushLocked(task{id: r.t.ID, place: driver.Status{State: driver.Gone}})
	}
}

// wakeLocked handles an event at path: it grants or wakes the tickets that wait for
// it.
func (s *session) wakeLocked(path string, deleted bool) {
	for r := range s.watchers[path] {
		delete(s.watchers[path], r)
		r.target = ""
		switch {
		case r.State != driver.Waiting || r.MustLeave:
		case deleted && r.alone:
			p := driver.Status{State: driver.Held, Token: r.Token}
			r.Push(p)
			s.pushLocked(task{id: r.t.ID, place: p})
		default:
			r.events++
			s.pushLocked(task{resolve: r})
		}
	}
	delete(s.watchers, path)
}

func (r *entry) watch(key string, alone bool) {
	r.unwatch()
	m := r.s.watchers[key]
	if m == nil {
		m = make(map[*entry]bool, 1)
		r.s.watchers[key] = m
	}
	m[r] = true
	r.target, r.alone = key, alone
}

func (r *entry) unwatch() {
	if m := r.s.watchers[r.target]; m != nil {
		delete(m, r)
		if len(m) == 0 {
			delete(r.s.watchers, r.target)
		}
	}
	r.target, r.alone = "", false
}

// pushLocked adds a task.
func (s *session) pushLocked(t task) {
	s.queue = append(s.queue, t)
	select {
	case s.taskReady <- struct{}{}:
	default:
	}
}

// work does the tasks: it delivers pushes itself, and starts a goroutine for a
// task that sends requests.
func (s *session) work() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.taskReady:
		}
		s.mu.Lock()
		todo := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, t := range todo {
			switch {
			case t.gap:
				s.d.push("", driver.Status{})
			case t.resolve != nil:
				s.goInSlot(func() { t.resolve.onTargetEvent() })
			default:
				s.d.push(t.id, t.place)
			}
		}
	}
}

// goInSlot runs f on a goroutine of its own. At most 16 run at once.
func (s *session) goInSlot(f func()) {
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

// inParallel calls f for all indices below n, up to 16 of them at once.
func inParallel(n int, f func(i int)) {
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
