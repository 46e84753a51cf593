package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tombstone"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// MinTTL and MaxTTL are the shortest and the longest TTL. Servers round a TTL
// below their own minimum up to it; the minimum is 2 s with the usual settings.
// A lock that has to outlive the election of a new leader needs 12 s or more.
const (
	MinTTL = time.Second
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// Granularity is the greatest delay with which a dead client's place ends after
// its time: leases are whole seconds, and the leader looks for expired leases
// twice a second.
const Granularity = 1500 * time.Millisecond

var traits = driver.Traits{
	Scheme:           "etcd",
	Fencing:          true,
	Shared:           true,
	Owner:            true,
	Fair:             true,
	Push:             true,
	Marks:            true,
	SurvivesRestart:  true,
	SurvivesFailover: true,
	MinTTL:           MinTTL,
	MaxTTL:           MaxTTL,
	Granularity:      Granularity,
}

// Options configure [New]. The zero value and nil select the defaults.
type Options struct {
	// Prefix begins every key. It is empty by default: a lock's name is then
	// the name that etcdctl lock and concurrency.NewMutex use.
	Prefix string
	// Namespace begins every key, before Prefix. It is the value that other
	// programs pass to package namespace of the client library. (New ignores
	// the namespace of a client that was changed by that package.)
	Namespace string
}

// Driver is one client of etcd, made by [New] or [Open].
type Driver struct {
	*cluster

	life      *lifetime
	pushes    pushes
	stored    tombstones
	keepAlive keepAlive
	watcher   watcher
	janitor   janitor

	mu         sync.Mutex
	sessions   map[time.Duration]*session
	opening    map[time.Duration]*opening
	leased     map[int64]*session // sessions by lease, those of owners included
	byID       map[string]*place
	byKey      map[string][]*place
	watched    int                   // watches on keys of the driver's own places
	tombstones tombstone.Set[string] // the driver's own; those at the store stop requests that are still under way
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New returns a driver that uses the user's client, which it leaves open. It
// sends nothing and does not block. It returns an error for a nil client, and
// for a prefix or namespace that is not UTF-8 or longer than driver.MaxName.
func New(cli *clientv3.Client, opts *Options) (*Driver, error) {
	if cli == nil {
		return nil, errors.New("etcdlock: the client is nil")
	}
	return newDriver(cli, nil, opts)
}

// newDriver returns a driver that uses cli. The connections are nil for a
// client that the user opened.
func newDriver(cli *clientv3.Client, ws *trackedConns, opts *Options) (*Driver, error) {
	if opts == nil {
		opts = &Options{}
	}
	prefix := opts.Namespace + opts.Prefix
	if prefix != "" {
		if err := driver.CheckName(prefix); err != nil {
			return nil, fmt.Errorf("etcdlock: prefix: %w", err)
		}
	}
	d := &Driver{
		cluster:  newCluster(cli, ws, layout{prefix}),
		sessions: make(map[time.Duration]*session),
		opening:  make(map[time.Duration]*opening),
		leased:   make(map[int64]*session),
		byID:     make(map[string]*place),
		byKey:    make(map[string][]*place),
	}
	d.tombstones.Keep = tombstoneTTL
	d.life = newLifetime()
	d.pushes.life = d.life
	d.stored.cluster = d.cluster
	d.keepAlive.start(d)
	d.watcher.start(d)
	d.janitor.start(d)
	return d, nil
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Watch implements [driver.Driver].
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	if err := d.life.checkOpen(ctx); err != nil {
		return err
	}
	d.pushes.to.Store(&listener{ctx, notify})
	d.mu.Lock()
	all := make([]*session, 0, len(d.leased))
	for _, s := range d.leased {
		all = append(all, s)
	}
	d.mu.Unlock()
	for _, s := range all {
		confirmed, err := d.awaitWatch(ctx, s)
		if err == nil && !confirmed {
			err = driver.Wrap(driver.Unavailable, d.withRefusal(errNoWatch))
		}
		if err != nil {
			return err
		}
	}
	d.janitor.kick()
	return nil
}

// Close implements [driver.Driver]. It revokes the leases that no place uses
// any longer; the others end by themselves, within the TTL.
func (d *Driver) Close() error {
	if !d.life.close() {
		return nil
	}
	d.mu.Lock()
	var idle []int64
	for _, s := range d.leased {
		if len(s.places) == 0 && !s.owned {
			idle = append(idle, s.id)
		}
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, id := range idle {
		d.revoke(ctx, id)
	}
	d.life.end()
	if d.conns != nil {
		return d.cli.Close()
	}
	return nil
}

// Identity implements [driver.Identifier]: it returns the cluster's id and the
// prefix.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.life.checkOpen(ctx); err != nil {
		return "", err
	}
	r, err := d.read(ctx, limit(keysOnly(all(d.keys.prefix+"%", d.keys.prefix+"&")), 1))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("etcd:%x/%s", r.Header.ClusterId, d.keys.prefix), nil
}

// splitMessages yields the lines of s.
func splitMessages(s string) func(func(string) bool) { return strings.SplitSeq(s, "\n") }
