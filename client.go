package holdfast

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	id       string
	serial   atomic.Uint64

	keeper  keeper
	cleaner cleaner

	// life ends when nothing may be sent any more; done closes earlier, when
	// Close begins, and hearing, under which pushes come, ends then.
	life    context.Context
	end     context.CancelFunc
	hearing context.Context
	deafen  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	lines    map[uint64]*line // by the hash of the key, which is large
	hash     func(lineKey) uint64
	isClosed bool
	calls    sync.WaitGroup // calls under way that Close waits for
	finish   sync.Once
	result   error

	waits sync.Pool // those that are over, to be used again

	watching struct {
		sync.Mutex
		on    bool          // pushes flow
		under chan struct{} // closed when the attempt under way has ended
		err   error
	}
}

// New makes a client of a driver, such as those of packages redislock or
// memlock; package anylock makes one from a URL. The client owns the driver and
// closes it. It returns an error for a bad option and does not block.
func New(d driver.Driver, opts ...Option) (*Client, error) {
	return newClient(d, sleptSinceBoot, opts...)
}

func newClient(d driver.Driver, asleep func() time.Duration, opts ...Option) (*Client, error) {
	if d == nil {
		return nil, errors.New("holdfast: the driver is nil")
	}
	c := &Client{drv: d, traits: d.Traits(), lines: make(map[uint64]*line), done: make(chan struct{})}
	seed := maphash.MakeSeed()
	c.hash = func(key lineKey) uint64 { return maphash.Comparable(seed, key) }
	c.settings.ttl = DefaultTTL
	for _, o := range opts {
		o(&c.settings)
	}
	if err := c.settings.check(c.traits); err != nil {
		return nil, err
	}
	if p := c.settings.prefix; p != "" {
		if err := driver.CheckName(p); err != nil {
			return nil, fmt.Errorf("holdfast: prefix: %w", err)
		}
	}
	c.id = newUUID()
	c.meta = newMetaEncoder(c.settings.owner, c.settings.note)
	c.clock.start(asleep)
	c.life, c.end = context.WithCancel(context.Background())
	c.hearing, c.deafen = context.WithCancel(c.life)
	c.keeper.start(c)
	c.cleaner.c, c.cleaner.lanes = c, make(map[uint64][]chore)
	if n, ok := d.(driver.Noticer); ok {
		for _, f := range n.Notices() {
			c.tellTrouble(fmt.Errorf("holdfast: %s: %s; %s", f.Topic, f.Detail, f.Advice))
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

// newID returns an id that was never used, and the metadata of a ticket made
// now; both are pieces of one string.
func (c *Client) newID(m metaEncoder, now time.Time) (id, meta string) {
	var b strings.Builder
	var num [20]byte
	b.Grow(len(c.id) + 1 + 2*len(num) + len(m.head) + len(m.tail))
	b.WriteString(c.id)
	b.WriteByte(':')
	b.Write(strconv.AppendUint(num[:0], c.serial.Add(1), 10))
	n := b.Len()
	m.write(&b, now)
	return b.String()[:n], b.String()[n:]
}

// Traits says what the store can do.
func (c *Client) Traits() driver.Traits { return c.traits }

// Do runs fn while holding the mutex of that name; see Mutex.Do.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	return c.Mutex(name, opts...).Do(ctx, fn)
}

// enter begins a call that Close waits for; leave ends it.
func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return false
	}
	c.calls.Add(1)
	return true
}

func (c *Client) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// line returns the local line of a key, and counts the caller among its users
// until releaseLine. It comes with a hold to be. It begins a call, as enter
// does, and returns nil when it is too late for that.
func (c *Client) line(key lineKey) (*line, *Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, nil
	}
	c.calls.Add(1)
	at := c.hash(key)
	for l := c.lines[at]; l != nil; l = l.same {
		if l.key == key {
			l.refs++
			return l, &Hold{line: l, wait: c.newWait()}
		}
	}
	s := new(solo)
	l, h := &s.line, &s.hold
	l.c, l.key, l.refs, l.same = c, key, 1, c.lines[at]
	c.lines[at] = l
	h.line, h.wait = l, c.newWait()
	h.wait.spare = &s.ticket
	return l, h
}

func (c *Client) releaseLine(l *line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.refs--
	if l.refs > 0 {
		return
	}
	at := c.hash(l.key)
	if first := c.lines[at]; first != l {
		for first.same != l {
			first = first.same
		}
		first.same = l.same
	} else if l.same != nil {
		c.lines[at] = l.same
	} else {
		delete(c.lines, at)
	}
}

// newWait returns a wait, perhaps with the channel of one before.
func (c *Client) newWait() *wait {
	if w, ok := c.waits.Get().(*wait); ok {
		return w
	}
	return new(wait)
}

// waited puts the wait of h away, which has become a hold: nobody rouses it
// now. One that failed is not used again, since its line may still ask for its
// error.
func (c *Client) waited(h *Hold) {
	w := h.wait
	h.wait = nil
	if w.wake != nil {
		select {
		case <-w.wake:
		default:
		}
	}
	*w = wait{wake: w.wake}
	c.waits.Put(w)
}

// watch sees to it that pushes flow before the first ticket can wait. It waits
// for no longer than limit; the attempt goes on.
func (c *Client) watch(ctx context.Context, limit time.Duration) error {
	w := &c.watching
	var late <-chan time.Time
	for {
		w.Lock()
		if w.on {
			w.Unlock()
			return nil
		}
		if w.under == nil {
			w.under = make(chan struct{})
			c.calls.Add(1)
			go func() {
				defer c.calls.Done()
				err := c.drv.Watch(c.hearing, c.keeper.moved)
				w.Lock()
				w.on, w.err = err == nil, err
				close(w.under)
				w.under = nil
				w.Unlock()
			}()
		}
		under := w.under
		w.Unlock()
		if late == nil {
			timer := time.NewTimer(limit)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-under:
		case <-late:
			return driver.Errorf(driver.Unavailable, "the store's pushes do not flow")
		case <-ctx.Done():
			return &driver.Error{Class: driver.NotDone, Err: context.Cause(ctx)}
		case <-c.done:
			return driver.ErrClosed
		}
		w.Lock()
		err := w.err
		w.Unlock()
		if err != nil {
			return err
		}
	}
}

func (c *Client) userName(name string) string {
	return strings.TrimPrefix(name, c.settings.prefix)
}

// storeName checks a user's name and puts the client's prefix before it.
func (c *Client) storeName(name string) (string, error) {
	if name == "" {
		return "", errors.New("holdfast: name is empty")
	}
	if err := driver.CheckName(c.settings.prefix + name); err != nil {
		return "", fmt.Errorf("holdfast: %w", err)
	}
	return c.settings.prefix + name, nil
}

// Inspect shows who holds a name and who waits for it, in order. A name that
// nobody uses has a Line without tickets. It blocks for a round trip and
// returns a *StoreError when the store does not answer.
func (c *Client) Inspect(ctx context.Context, name string) (Line, error) {
	full, err := c.storeName(name)
	if err != nil {
		return Line{}, err
	}
	dl, err := c.drv.Inspect(ctx, full)
	if err != nil {
		return Line{}, storeError("inspect", name, err)
	}
	return newLine(name, dl), nil
}

// Names yields the names in use that begin with prefix, in no order. It asks
// the store as it goes; an error, a *StoreError, ends it.
func (c *Client) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for name, err := range c.drv.Names(ctx, c.settings.prefix+prefix) {
			if err != nil {
				yield("", storeError("list names", "", err))
				return
			}
			if !yield(c.userName(name), nil) {
				return
			}
		}
	}
}

// Break removes one ticket of a name, holding or waiting, whoever's it is. A
// holder learns of it at once where the store pushes, and at the latest with
// its next renewal: until then two may believe they hold, so it is for holders
// that are known to be dead or stuck. It returns ErrNoTicket when there is no
// such ticket, and a *StoreError when the store does not answer.
func (c *Client) Break(ctx context.Context, name, ticketID string) error {
	full, err := c.storeName(name)
	if err != nil {
		return err
	}
	if err := c.drv.Break(ctx, full, ticketID); err != nil {
		return storeError("break", name, err)
	}
	return nil
}

// Check examines the store for what would make the lock weaker than promised.
// Stores without such a check (see driver.Checker) return ErrUnsupported.
func (c *Client) Check(ctx context.Context) ([]driver.Finding, error) {
	ch, ok := c.drv.(driver.Checker)
	if !ok {
		return nil, fmt.Errorf("holdfast: check: %w", ErrUnsupported)
	}
	fs, err := ch.Check(ctx)
	if err != nil {
		return nil, storeError("check", "", err)
	}
	return fs, nil
}
