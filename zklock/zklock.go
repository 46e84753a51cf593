// Package zklock keeps queues of tickets in ZooKeeper, 3.5 or later, on one
// server or an ensemble, through github.com/go-zookeeper/zk.
//
// # Layout on the server
//
// A queue is a container node. Its tickets are ephemeral sequential children in
// the format of Apache Curator's locks. Curator's InterProcessMutex and
// InterProcessReadWriteLock, and the Lock of go-zookeeper, therefore exclude
// and wake Holdfast's tickets, and are excluded and woken by them:
//
//	_c_<uuid>-lock-<number>                  a mutex
//	_c_<uuid>-__READ__<number>               a reader
//	_c_<uuid>-__WRIT__<number>               a writer
//	_c_<uuid>-sem-<limit>-<units>-<number>   a semaphore's permits
//
// The UUID follows from the ticket's id; the server appends the ten digits of
// the number. The nodes of a named owner have "o<hash>-" after the UUID, and
// nodes that share a place have the same number. The content is JSON, for
// people and for Inspect.
//
// The path of a queue is <chroot>/<root>/<name>. In the name, every byte that
// is not printable ASCII, and '/', '%' and '~', are written as %XX. A name that
// would be longer than 512 bytes in this form is written as '~' and its
// SHA-256.
//
// Beside the queues are %sessions, which has an ephemeral node for each session
// of a driver; %identity, which identifies the store; and %marks, which has a
// persistent node for each mark. Its content is the version of the layout, "hf1",
// and the token, each on a line of its own, and the mark's value.
//
// # Tokens
//
// A token is the zxid of the transaction that created the ticket's node;
// token.go describes tickets with a minimum token. Sequence numbers cannot be
// tokens: they restart with their container. Zxids grow with every change of
// the ensemble for as long as the ensemble keeps its data.
//
// # Sessions
//
// All tickets of one TTL live in one session, whose time-out is a little longer
// than the TTL; heartbeat.go has the reasons. The server keeps all tickets of a
// session as long as the session, so the driver itself drops tickets that were
// not renewed in time.
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
	"github.com/holdfast-go/holdfast/internal/tracker"
)

// Options configure how a driver uses ZooKeeper. The zero value is right for
// most programs.
type Options struct {
	// Chroot is the path below which the driver keeps everything. The path has
	// to exist. Empty means the root of the server.
	Chroot string
	// Root is the path of the queues below the chroot; the driver makes it when
	// it is missing. Empty means "/holdfast"; "/" puts queues directly below
	// the chroot, where locks of other libraries may be.
	Root string
	// User and Password are sent with the scheme "digest". New refuses them:
	// the user's connection brings its own.
	User, Password string
	// Open lets everybody read and change the nodes that the driver makes. If
	// it is false and User is set, only that user may.
	Open bool
	// ACL is the access list of the nodes that the driver makes. Nil means that
	// Open decides.
	ACL []zk.ACL
	// Tick is the tickTime of the servers. Zero means half the shortest session
	// time-out that the servers grant, which is right unless their
	// configuration sets minSessionTimeout.
	Tick time.Duration
	// Dial makes connections; nil means net.DialTimeout.
	Dial zk.Dialer
}

// Driver is one client of a ZooKeeper. A goroutine that takes several of its
// mutexes takes them in the order entry.busy, session.marking, session.mu,
// Driver.mu.
type Driver struct {
	opts    Options
	servers []string
	chroot  string // "" or "/a/b"
	base    string // of the queues: chroot and root
	acl     []zk.ACL
	tick    time.Duration
	traits  driver.Traits
	only    *session // the session of a user's connection; nil if the driver dials

	watch atomic.Pointer[watcher]

	mu       sync.Mutex
	closed   bool
	calls    sync.WaitGroup
	sessions map[time.Duration]*session
	retired  map[*session]bool             // sessions that take no more tickets, see session.retireIfRefused
	tickets  tracker.Set[[16]byte, *entry] // by UUID
	clients  map[string]bool               // the first clientLen characters of this client's UUIDs
	down     chan struct{}                 // closed when a session loses its connection, then replaced
}

type watcher struct {
	ctx    context.Context
	notify func(string, driver.Status)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// traitsOf returns the traits of a server with these limits.
func traitsOf(tick, shortest, longest time.Duration) driver.Traits {
	return driver.Traits{
		Scheme: "zk", Fencing: true, Shared: true, Owner: true, Fair: true, Push: true, Marks: true,
		SurvivesRestart: true, SurvivesFailover: true,
		MinTTL:      max(ttlFor(shortest, tick), 100*time.Millisecond),
		MaxTTL:      ttlFor(longest, tick),
		Granularity: maxOverrun(tick),
	}
}

// The limits of a server whose configuration sets none.
const (
	usualTick     = 2 * time.Second
	usualShortest = 2 * usualTick
	usualLongest  = 20 * usualTick
)

// Traits implements [driver.Driver]. A driver that was never opened returns the
// traits of a server with ZooKeeper's own defaults.
func (d *Driver) Traits() driver.Traits {
	if d.traits.Scheme == "" {
		return traitsOf(usualTick, usualShortest, usualLongest)
	}
	return d.traits
}

// newDriver checks the options and returns a driver without sessions.
func newDriver(opts *Options) (*Driver, error) {
	d := &Driver{
		sessions: make(map[time.Duration]*session),
		retired:  make(map[*session]bool),
		clients:  make(map[string]bool),
		down:     make(chan struct{}),
	}
	d.tickets.Tombstones.Keep = tombstoneTTL
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

// cleanPath returns a path without a slash at its end, and "" for the root.
func cleanPath(p string) (string, error) {
	p = strings.TrimSuffix(p, "/")
	if p == "" {
		return "", nil
	}
	if p[0] != '/' {
		p = "/" + p
	}
	for _, field := range strings.Split(p[1:], "/") {
		if field == "" || field == "." || field == ".." || strings.ContainsFunc(field, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", errors.New("the path " + p + " has an element that ZooKeeper does not take: it is empty, . or .., or has a control character")
		}
	}
	return p, nil
}

func (d *Driver) checkOpen(ctx context.Context) error {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// Watch implements [driver.Driver]. Pushes come from the watches of waiting
// tickets; a session that had to connect again reports the gap.
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	d.watch.Store(&watcher{ctx, notify})
	return nil
}

func (d *Driver) push(id string, p driver.Status) {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
		w.notify(id, p)
	}
}

// Close implements [driver.Driver]. A session that still has tickets is not
// closed: it ends with its time-out.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	sessions := slices.AppendSeq(slices.Collect(maps.Values(d.sessions)), maps.Keys(d.retired))
	d.mu.Unlock()
	d.watch.Store(nil)
	if d.only != nil {
		sessions = append(sessions, d.only)
	}
	inParallel(len(sessions), func(i int) { sessions[i].close(sessions[i].inUse()) })
	d.calls.Wait()
	return nil
}
