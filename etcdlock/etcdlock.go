package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
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
	Scheme: "etcd", Fencing: true, Shared: true, Owner: true, Fair: true, Push: true, Marks: true,
	SurvivesRestart: true, SurvivesFailover: true,
	MinTTL: MinTTL, MaxTTL: MaxTTL, Granularity: Granularity,
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
	*requests
	janitor janitor
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
func newDriver(cli *clientv3.Client, conns *trackedConns, opts *Options) (*Driver, error) {
	if opts == nil {
		opts = &Options{}
	}
	prefix := opts.Namespace + opts.Prefix
	if prefix != "" {
		if err := driver.CheckName(prefix); err != nil {
			return nil, fmt.Errorf("etcdlock: prefix: %w", err)
		}
	}
	r := &requests{cluster: newCluster(cli, conns, layout{prefix}), life: newLifetime()}
	d := &Driver{r, janitor{r, make(chan struct{}, 1)}}
	r.pushes.life = r.life
	r.tombstones.cluster, r.tombstones.places = r.cluster, &r.places
	r.watcher = watcher{cluster: r.cluster, life: r.life, onGap: r.sessions.afterGap,
		all: make(map[int64]*watch), wake: make(chan struct{}, 1)}
	r.sessions = sessions{cluster: r.cluster, life: r.life, pushes: &r.pushes, watcher: &r.watcher,
		keepAlive: keepAlive{cluster: r.cluster, life: r.life, wake: make(chan struct{}, 1)},
		onOpen:    d.janitor.kick, onLost: r.places.onSessionLost, onWake: r.places.onWake,
		byTTL: make(map[time.Duration]*opening), leased: make(map[int64]*session)}
	r.places = places{cluster: r.cluster, pushes: &r.pushes, watcher: &r.watcher, schedule: schedule{cluster: r.cluster, kick: d.janitor.kick},
		byKey: make(map[string][]*place)}
	r.places.tickets.Tombstones.Keep = tombstoneTTL
	for _, room := range []func(){r.sessions.keepAlive.run, r.watcher.run, d.janitor.run} {
		r.life.run(room)
	}
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
	if err := d.sessions.watchAll(ctx); err != nil {
		return err
	}
	d.janitor.kick()
	return nil
}

// Close implements [driver.Driver]. It revokes the leases that no place uses
// any longer; the others end by themselves, within the TTL.
func (d *Driver) Close() error {
	if !d.life.end() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	d.sessions.revokeIdle(ctx)
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
