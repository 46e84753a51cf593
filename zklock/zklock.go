// Package zklock keeps lines of tickets in ZooKeeper, 3.5 or later, of one
// server or an ensemble, by way of github.com/go-zookeeper/zk.
//
// # What is in the server
//
// A line is a container node, its tickets are ephemeral sequential children in
// the format of Apache Curator's locks, so that Curator's InterProcessMutex
// and InterProcessReadWriteLock, and the Lock of go-zookeeper, exclude and
// wake Holdfast's tickets and are excluded and woken by them:
//
//	_c_<uuid>-lock-<number>                  a mutex
//	_c_<uuid>-__READ__<number>               a reader
//	_c_<uuid>-__WRIT__<number>               a writer
//	_c_<uuid>-sem-<limit>-<units>-<number>   a semaphore's permits
//
// The UUID follows from the ticket's id; the ten digits are the server's. A
// named owner's nodes have "o<hash>-" after the UUID, and those that share a
// place have one number. The content is JSON, for people and for Inspect.
//
// The path of a line is <chroot>/<root>/<name>, with every byte of the name
// that is not printable ASCII, and '/', '%' and '~', as %XX; names that would
// be longer than 512 bytes that way are '~' and their SHA-256.
//
// Beside the lines are %sessions, with an ephemeral node for each session of a
// driver, and %identity, which says which store this is.
//
// # Tokens
//
// A token is the zxid of the transaction that created the ticket's node; see
// token.go for tickets with a floor. Sequence numbers are none: they restart
// with their container. Zxids grow with every change of the ensemble for as
// long as it keeps its data.
//
// # Sessions
//
// All tickets of one TTL live in one session, whose time-out is a little
// longer than the TTL; beat.go has the reasons. The server keeps a session's
// tickets together, so the driver itself drops those that were not renewed in
// time.
package zklock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Options say how a driver uses ZooKeeper. The zero value is right for most.
type Options struct {
	// Chroot is the path below which everything is; it has to exist. Empty
	// means the root of the server.
	Chroot string
	// Root is the path below the chroot under which the lines are; it is made
	// when it is missing. Empty means "/holdfast"; "/" puts lines directly
	// below the chroot, where locks of other libraries may be.
	Root string
	// User and Password are sent with the scheme "digest". Not for New: a
	// connection brings its own.
	User, Password string
	// Open lets everybody read and change the nodes that the driver makes.
	// Otherwise, with a User, only that user may.
	Open bool
	// ACL is the access list of the nodes that the driver makes. Nil means as
	// Open says.
	ACL []zk.ACL
	// Tick is the tickTime of the servers. Zero means half the shortest
	// session time-out that they grant, which is right unless they have
	// minSessionTimeout in their configuration.
	Tick time.Duration
	// Dial makes connections; nil means net.DialTimeout.
	Dial zk.Dialer
}

// Driver is one client of a ZooKeeper. Where several of its locks are taken,
// it is in the order record.busy, session.marking, session.mu, Driver.mu.
type Driver struct {
	opts    Options
	servers []string
	chroot  string // "" or "/a/b"
	base    string // of the lines: chroot and root
	acl     []zk.ACL
	tick    time.Duration
	traits  driver.Traits
	only    *session // of a user's connection

	watch atomic.Pointer[watcher]

	mu       sync.Mutex
	closed   bool
	calls    sync.WaitGroup
	sessions map[time.Duration]*session
	homes    map[string]*session // by UUID of tickets
	clients  map[string]bool     // whose UUIDs begin so are ours
	gone     graves
}

type watcher struct {
	ctx   context.Context
	moved func(string, driver.Place)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// traits of a server with these limits.
func traitsOf(tick, shortest, longest time.Duration) driver.Traits {
	return driver.Traits{
		Scheme: "zk", Fencing: true, Shared: true, Owner: true, Fair: true, Push: true,
		SurvivesRestart: true, SurvivesFailover: true,
		MinTTL:      max(ttlFor(shortest, tick), 100*time.Millisecond),
		MaxTTL:      ttlFor(longest, tick),
		Granularity: late(tick),
	}
}

// The limits of a server that has none in its configuration.
const (
	usualTick     = 2 * time.Second
	usualShortest = 2 * usualTick
	usualLongest  = 20 * usualTick
)

// Traits implements [driver.Driver]. A driver that was never opened has those
// of a server with ZooKeeper's own defaults.
func (d *Driver) Traits() driver.Traits {
	if d.traits.Scheme == "" {
		return traitsOf(usualTick, usualShortest, usualLongest)
	}
	return d.traits
}

// newDriver checks the options.
func newDriver(opts *Options) (*Driver, error) {
	d := &Driver{
		sessions: make(map[time.Duration]*session),
		homes:    make(map[string]*session),
		clients:  make(map[string]bool),
	}
	if opts != nil {
		d.opts = *opts
	}
	var err error
	if d.chroot, err = cleanPath(d.opts.Chroot); err != nil {
		return nil, err
	}
	root := d.opts.Root
	if root == "" {
		root = "/holdfast"
	}
	if root, err = cleanPath(root); err != nil {
		return nil, err
	}
	d.base = d.chroot + root
	switch {
	case d.opts.Tick < 0:
		return nil, errors.New("the tick is negative")
	case d.opts.ACL != nil:
		d.acl = d.opts.ACL
	case d.opts.User != "" && !d.opts.Open:
		d.acl = zk.AuthACL(zk.PermAll)
	default:
		d.acl = zk.WorldACL(zk.PermAll)
	}
	return d, nil
}

// cleanPath returns a path without a slash at its end, "" for the root.
func cleanPath(p string) (string, error) {
	p = strings.TrimSuffix(p, "/")
	if p == "" {
		return "", nil
	}
	if p[0] != '/' {
		p = "/" + p
	}
	for _, part := range strings.Split(p[1:], "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", errors.New("the path " + p + " has an element that ZooKeeper does not take")
		}
	}
	return p, nil
}

func (d *Driver) before(ctx context.Context) error {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// do runs f on a goroutine, because the library's calls know no contexts, and
// waits for it or for the end of ctx. Close waits for what goes on after that.
func (d *Driver) do(ctx context.Context, f func()) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return driver.ErrClosed
	}
	d.calls.Add(1)
	d.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer d.calls.Done()
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// doFor is do for an f with a result, which nobody reads when ctx ends first.
func doFor[T any](ctx context.Context, d *Driver, f func() (T, error)) (T, error) {
	var got, none T
	var err error
	if e := d.do(ctx, func() { got, err = f() }); e != nil {
		return none, e
	}
	return got, err
}

// session returns the session for tickets of a TTL, opened when there is none.
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

// any returns a session to look at things with.
func (d *Driver) any(ctx context.Context) (*session, error) {
	if d.only != nil {
		return d.only, d.only.ready(ctx)
	}
	d.mu.Lock()
	sessions := slices.Collect(maps.Values(d.sessions))
	d.mu.Unlock()
	for _, s := range sessions { // never under d.mu: see the order of locks
		if s.up() {
			return s, s.ready(ctx)
		}
	}
	return d.session(ctx, min(max(10*time.Second, d.traits.MinTTL), d.traits.MaxTTL))
}

// home returns the session in which the ticket of a UUID is, or makes s that.
func (d *Driver) home(uuid string, s *session) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.homes[uuid]; old != nil {
		return old
	}
	d.homes[uuid] = s
	d.clients[uuid[:clientLen]] = true
	return s
}

func (d *Driver) disown(uuid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.homes, uuid)
}

// find returns the record of a ticket, nil when it has none.
func (d *Driver) find(uuid string) *record {
	d.mu.Lock()
	s := d.homes[uuid]
	d.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recs[uuid]
}

func (d *Driver) bury(uuid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone.add(uuid, time.Now())
}

func (d *Driver) buried(uuid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone.has(uuid, time.Now())
}

// strays deletes nodes that this client made and knows nothing of: those of
// creates that were carried out after all.
func (d *Driver) strays(s *session, line string, v *view) {
	var found []string
	d.mu.Lock()
	for _, n := range v.nodes {
		if n.uuid != "" && d.clients[n.uuid[:clientLen]] && d.homes[n.uuid] == nil {
			found = append(found, n.name)
		}
	}
	d.mu.Unlock()
	for _, name := range found {
		_ = s.conn.Delete(line+"/"+name, -1) // else it is seen again
	}
}

// Watch implements [driver.Driver]. Pushes come by the watches of waiting
// tickets; a session that had to connect again tells of the gap.
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	d.watch.Store(&watcher{ctx, moved})
	return nil
}

func (d *Driver) push(id string, p driver.Place) {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		w.moved(id, p)
	}
}

// Close implements [driver.Driver]. A session in which there are tickets is
// not closed but left to its time-out.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	sessions := slices.Collect(maps.Values(d.sessions))
	d.mu.Unlock()
	d.watch.Store(nil)
	if d.only != nil {
		sessions = append(sessions, d.only)
	}
	each(len(sessions), func(i int) { sessions[i].close(sessions[i].inUse()) })
	d.calls.Wait()
	return nil
}

// inUse says whether there are tickets that nobody gave up.
func (s *session) inUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.recs {
		if r.path != "" && !r.left && r.state != driver.Gone {
			return true
		}
	}
	return false
}
