package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// Client holds locks in one store. Make one for each process and store, share
// it, and Close it at the end. It is safe for concurrent use.
type Client struct {
	drv      driver.Driver
	traits   driver.Traits
	settings settings
	meta     metaEncoder // of locks with the client's owner and note
	clock    clock
	ids      ticketIDs

	renewer renewer
	cleaner cleaner
	report  reporter

	// requestCtx ends when no request may be sent any more. done closes earlier,
	// when nothing is renewed any more; pushCtx, the context of Watch, ends then
	// too. shutdown.closing closes first, when calls begin to refuse.
	requestCtx   context.Context
	stopRequests context.CancelFunc
	pushCtx      context.Context
	stopPushes   context.CancelFunc
	done         chan struct{}
	shutdown     shutdown

	mu     sync.Mutex
	queues queues
	calls  sync.WaitGroup // calls in flight that Close waits for
	waits  waitPool

	subscription subscription
	lanes        lanes
}

// New returns a client of a driver, such as those of packages redislock or
// memlock; package anylock makes a client from a URL. The client owns the
// driver and closes it. New returns an error for a bad option and does not
// block.
func New(d Driver, opts ...ClientOption) (*Client, error) {
	return newClient(d, sleptSinceBoot, opts...)
}

func newClient(d Driver, readSlept func() time.Duration, opts ...ClientOption) (*Client, error) {
	if v := reflect.ValueOf(d); d == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("holdfast: the driver is nil")
	}
	c := &Client{drv: d, traits: d.Traits(), done: make(chan struct{})}
	seed := maphash.MakeSeed()
	c.queues = queues{c: c, byHash: make(map[uint64]*queue), hash: func(key queueKey) uint64 { return maphash.Comparable(seed, key) }}
	if err := c.settings.applyClient(opts); err != nil {
		return nil, err
	}
	c.settings.fitTTL(c.traits)
	if err := c.settings.check(c.traits); err != nil {
		return nil, err
	}
	if p := c.settings.prefix; p != "" {
		if err := driver.CheckName(p); err != nil {
			return nil, fmt.Errorf("holdfast: prefix: %w", err)
		}
	}
	for _, o := range c.settings.observers {
		c.report.add(o)
	}
	c.ids.client = newUUID()
	c.meta = newMetaEncoder(&c.settings)
	c.clock.start(readSlept)
	c.requestCtx, c.stopRequests = context.WithCancel(context.Background())
	c.pushCtx, c.stopPushes = context.WithCancel(c.requestCtx)
	c.shutdown.init(c)
	c.subscription.c = c
	c.lanes.init(c)
	c.renewer.init(c)
	c.cleaner.c, c.cleaner.lanes = c, make(map[laneKey][]pendingLeave)
	c.cleaner.leaving = make(map[*driver.Ticket]chan struct{})
	if n, ok := d.(driver.Noticer); ok {
		for _, f := range n.Notices() {
			c.report.background(BackgroundErrorInfo{Op: "check",
				Err: fmt.Errorf("holdfast: %s: %s; %s", f.Topic, f.Detail, f.Advice)})
		}
	}
	return c, nil
}

// newUUID returns a random (version 4) UUID.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Traits returns the abilities and bounds of the store.
func (c *Client) Traits() Traits {
	if !c.made() {
		return Traits{}
	}
	return c.traits
}

// TTL returns the lease of locks that are made without WithTTL: the TTL given
// to New, else 30 s or the nearest value that the store allows.
func (c *Client) TTL() time.Duration {
	if !c.made() {
		return 0
	}
	return c.settings.ttl
}

// Do runs fn while holding the mutex of that name; see Mutex.Do.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	return c.Mutex(name, opts...).Do(ctx, fn)
}

// beginCall begins a call that Close waits for; calls.Done ends it. It returns
// false once the client has closed. During Shutdown it still returns true.
func (c *Client) beginCall() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shutdown.phase == phaseClosed {
		return false
	}
	c.calls.Add(1)
	return true
}

func (c *Client) userName(name string) string {
	return strings.TrimPrefix(name, c.settings.prefix)
}

// storeName checks a user's name and puts the client's prefix before it.
func (c *Client) storeName(name string) (string, error) {
	if name == "" {
		return "", errors.New("holdfast: name is empty")
	}
	full := c.settings.prefix + name
	err := driver.CheckName(full)
	if err == nil {
		return full, nil
	}
	if own := driver.CheckName(name); own != nil {
		return "", fmt.Errorf("holdfast: %w", own)
	}
	return "", fmt.Errorf("holdfast: with the prefix of %d bytes: %w", len(c.settings.prefix), err)
}

// Inspect returns the holders of a name and its waiters, in order. A name that
// is not in use has a LockInfo without tickets. Inspect blocks for a round trip and
// returns a *StoreError if the store does not answer.
func (c *Client) Inspect(ctx context.Context, name string) (LockInfo, error) {
	if err := c.checkCall(ctx); err != nil {
		return LockInfo{}, err
	}
	full, err := c.storeName(name)
	if err != nil {
		return LockInfo{}, err
	}
	var dq driver.Queue
	err = c.read(ctx, "inspect", name, func(ctx context.Context) (err error) {
		dq, err = c.lanes.of(full).inspectQueue(ctx, full)
		return err
	})
	if err != nil {
		return LockInfo{}, err
	}
	return newLockInfo(name, dq), nil
}

// Names yields the names in use that begin with prefix, in no order. It asks
// the store during the iteration; an error, a *StoreError, ends the sequence. A
// prefix that is not valid UTF-8, with which no name begins, is an error too.
func (c *Client) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := c.checkCall(ctx)
		if err == nil && !utf8.ValidString(prefix) {
			err = errors.New("holdfast: the prefix of the names is not valid UTF-8")
		}
		if err != nil {
			yield("", err)
			return
		}
		// Close ends the request and does not wait for it: the loop may call Close.
		own, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.pushCtx, cancel)()
		for name, err := range c.drv.Names(own, c.settings.prefix+prefix) {
			if err != nil {
				yield("", c.readError(ctx, "list names", "", err))
				return
			}
			if !yield(c.userName(name), nil) {
				return
			}
		}
	}
}

// Break removes one ticket of a name, of any client, holding or waiting. The
// ticket's client learns of it at once where the store pushes, and at the
// latest with its next renewal. Until then the old holder and the next one may
// both believe that they hold, so use Break for holders that are known to be
// dead or stuck. It returns ErrNoTicket if there is no such ticket, and a
// *StoreError if the store does not answer.
func (c *Client) Break(ctx context.Context, name, ticketID string) error {
	if err := c.checkCall(ctx); err != nil {
		return err
	}
	full, err := c.storeName(name)
	if err != nil {
		return err
	}
	return c.read(ctx, "break", name, func(ctx context.Context) error { return c.drv.Break(ctx, full, ticketID) })
}

// Check examines the store for settings that would make the lock weaker than
// promised. For a store without such a check (see driver.Checker) it returns
// ErrUnsupported.
func (c *Client) Check(ctx context.Context) ([]Finding, error) {
	if err := c.checkCall(ctx); err != nil {
		return nil, err
	}
	checker, ok := c.drv.(driver.Checker)
	if !ok {
		return nil, fmt.Errorf("holdfast: check: %w", ErrUnsupported)
	}
	var fs []Finding
	err := c.read(ctx, "check", "", func(ctx context.Context) (err error) {
		fs, err = checker.Check(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return fs, nil
}
