package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// MinTTL and MaxTTL are the shortest and the longest TTL. Servers round what
// is below their own minimum up, which is 2 s with the usual settings. A lock
// that has to outlive the election of a new leader wants 12 s or more.
const (
	MinTTL = time.Second
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// Granularity is how much later than its time a dead client's place may end:
// leases are whole seconds, and the leader looks twice a second for those that
// are over.
const Granularity = 1500 * time.Millisecond

var traits = driver.Traits{
	Scheme:           "etcd",
	Fencing:          true,
	Shared:           true,
	Owner:            true,
	Fair:             true,
	Push:             true,
	SurvivesRestart:  true,
	SurvivesFailover: true,
	MinTTL:           MinTTL,
	MaxTTL:           MaxTTL,
	Granularity:      Granularity,
}

// Options are what [New] may be told. The zero value, and nil, are the
// defaults.
type Options struct {
	// Prefix begins every key. Default none: a lock's name is then what
	// etcdctl lock and concurrency.NewMutex take.
	Prefix string
	// Namespace begins every key, before Prefix: what other programs give to
	// package namespace of the client library. (A client that was changed by
	// that package is used without its namespace.)
	Namespace string
}

// Driver is one client of etcd, made by [New] or [Open].
type Driver struct {
	cli     *clientv3.Client
	kv      pb.KVClient
	leases  pb.LeaseClient
	watches pb.WatchClient
	keys    layout
	opened  bool // cli is the driver's own

	life context.Context
	end  context.CancelFunc
	busy sync.WaitGroup

	room    room
	heart   heart
	watcher watcher
	minder  minder

	mu       sync.Mutex
	closed   bool
	watching context.Context
	moved    func(string, driver.Place)
	sessions map[time.Duration]*session
	opening  map[time.Duration]*opening
	leased   map[int64]*session // sessions by lease, those of owners too
	byID     map[string]*place
	byKey    map[string][]*place
	watched  int // own keys
	graves   graves
	burial   burial
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New makes a driver of a client that the user has, and leaves that open. It
// sends nothing and does not block. It returns an error for a nil client, and
// for a prefix or namespace that is not UTF-8 or longer than driver.MaxName.
func New(cli *clientv3.Client, opts *Options) (*Driver, error) {
	if cli == nil {
		return nil, errors.New("etcdlock: the client is nil")
	}
	if opts == nil {
		opts = &Options{}
	}
	prefix := opts.Namespace + opts.Prefix
	if prefix != "" {
		if err := driver.CheckName(prefix); err != nil {
			return nil, fmt.Errorf("etcdlock: prefix: %w", err)
		}
	}
	conn := cli.ActiveConnection()
	d := &Driver{
		cli:      cli,
		kv:       pb.NewKVClient(conn),
		leases:   pb.NewLeaseClient(conn),
		watches:  pb.NewWatchClient(conn),
		keys:     layout{prefix},
		sessions: make(map[time.Duration]*session),
		opening:  make(map[time.Duration]*opening),
		leased:   make(map[int64]*session),
		byID:     make(map[string]*place),
		byKey:    make(map[string][]*place),
	}
	d.life, d.end = context.WithCancel(context.Background())
	d.heart.start(d)
	d.watcher.start(d)
	d.minder.start(d)
	return d, nil
}

// goes runs f on a goroutine that Close waits for. f ends with Driver.life.
func (d *Driver) goes(f func()) {
	d.busy.Go(f)
}

// behind runs f on a goroutine that Close waits for, with a context that ends
// soon.
func (d *Driver) behind(f func(ctx context.Context)) {
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.busy.Add(1)
	}
	d.mu.Unlock()
	if closed {
		return
	}
	go func() {
		defer d.busy.Done()
		ctx, cancel := context.WithTimeout(d.life, 2*time.Second)
		defer cancel()
		f(ctx)
	}()
}

func (d *Driver) before(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Watch implements [driver.Driver].
func (d *Driver) Watch(ctx context.Context, moved func(string, driver.Place)) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	d.watching, d.moved = ctx, moved
	all := make([]*session, 0, len(d.leased))
	for _, s := range d.leased {
		all = append(all, s)
	}
	d.mu.Unlock()
	for _, s := range all {
		if err := d.listen(ctx, s); err != nil {
			return err
		}
	}
	d.minder.kick()
	return nil
}

// push tells the core. The caller has no lock.
func (d *Driver) push(id string, p driver.Place) {
	d.mu.Lock()
	moved := d.moved
	if d.closed || d.watching != nil && d.watching.Err() != nil {
		moved = nil
	}
	d.mu.Unlock()
	if moved != nil {
		moved(id, p)
	}
}

// Close implements [driver.Driver]. Leases by which nothing lives any more are
// given back; the others end by themselves, within the TTL.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
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
	d.end()
	d.busy.Wait()
	if d.opened {
		return d.cli.Close()
	}
	return nil
}

// Identity implements [driver.Identifier]: the cluster's id and the prefix.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.before(ctx); err != nil {
		return "", err
	}
	r, err := d.read(ctx, limit(keysOnly(all(d.keys.prefix+"%", d.keys.prefix+"&")), 1))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("etcd:%x/%s", r.Header.ClusterId, d.keys.prefix), nil
}

// splitLines yields the lines of s.
func splitLines(s string) func(func(string) bool) { return strings.SplitSeq(s, "\n") }
