// Package stock sells what many want at once: one product's units, split over
// shards that sell beside each other, on one Redis, on a Redis Cluster, or on
// several servers that know nothing of each other.
//
//	st, err := stock.Open(ctx, nil, "redis://a:6379", "redis://b:6379", "redis://c:6379")
//	…
//	err = st.Set(ctx, "phone", 100_000, 6) // once
//	…
//	receipt, err := st.Sell(ctx, "phone", 1, order.ID)
//
// A sale has an id, which is the caller's: the number of the order. What is sold
// under an id is sold once, however often Sell is called with it, by however many
// processes, after whatever crash or lost answer. No unit is sold twice, lost or
// invented as long as the servers keep what they have acknowledged.
//
// The id says at which shard a sale has its home, and there it is decided, in
// one step of one server. Ids of NewSaleID have theirs at one shard after the
// other, from a random one on. When the home is short of units, it is brought some
// from other shards: in turn from the next that has enough, and from several
// when none has. What was brought and is not needed stays there and can be sold
// to anybody. docs/stock.md has the reasons, and what the servers need.
package stock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// Options change how a Stock works. The zero value, and nil, are the defaults.
type Options struct {
	// Prefix begins all keys; empty is "holdfast_stock_".
	Prefix string
	// Keep is how long the receipt of a sale is kept after its last change, at
	// least a second; 0 is 24 hours. For as long a sale can be repeated,
	// returned and looked up; afterwards its id is as good as new. It is fixed
	// for a product when it is Set.
	Keep time.Duration
	// SoldOutFor is for how long after an answer of "sold out" this client gives
	// the same answer without asking; 0 is 100 ms, and less than 0 not at all.
	// What comes back to stock is found that much later.
	SoldOutFor time.Duration
	// Patience is for how long a call asks again when a server does not answer
	// or cannot be reached; 0 is 5 s. Its context may end it earlier.
	Patience time.Duration
}

const (
	// MaxUnits is the most units in one Set, Add or sale.
	MaxUnits = 1_000_000_000
	// MaxShards is the most shards a product may have.
	MaxShards = 256

	maxText     = 256 // of a SKU or the id of a sale, in bytes
	maxUnsure   = 1 << 16
	answerLimit = 2 * time.Second
)

// Stock is a client. It is safe for concurrent use.
type Stock struct {
	backend backend
	o       Options

	products sync.Map // *product by SKU
	closed   atomic.Bool
	life     context.Context
	end      context.CancelFunc

	mu     sync.Mutex
	unsure map[[2]string]struct{} // sales of unknown outcome, by SKU and id
	doubts atomic.Int64           // how many
}

// Open opens a client for servers at the URLs, of the form
//
//	redis://[user:password@]host:port[/database]
//
// or rediss for TLS; a node of a cluster stands for the whole cluster. The URL
// "memory:" alone is a store in this process, of this Stock only.
//
// The order of the servers is part of where things are: all clients have the
// same list, and it may only grow at its end. Open blocks until all servers have
// answered; no error contains a password.
func Open(ctx context.Context, o *Options, urls ...string) (*Stock, error) {
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("stock: open: %w", err)
	}
	if len(urls) == 0 {
		return nil, errors.New("stock: open: no URL")
	}
	if len(urls) == 1 && urls[0] == "memory:" {
		return open(newMemory(1), o)
	}
	options, err := o.checked()
	if err != nil {
		return nil, err
	}
	b, err := connect(urls, options.Prefix)
	if err != nil {
		return nil, err
	}
	return open(b, o)
}

// New makes a client on clients of Redis that the program has, one for each
// server or cluster; see Open. Close does not close them.
func New(o *Options, clients ...rueidis.Client) (*Stock, error) {
	if len(clients) == 0 {
		return nil, errors.New("stock: no client")
	}
	options, err := o.checked()
	if err != nil {
		return nil, err
	}
	return open(&servers{prefix: options.Prefix, clients: clients}, o)
}

func (o *Options) checked() (c Options, err error) {
	if o != nil {
		c = *o
	}
	if c.Prefix == "" {
		c.Prefix = "holdfast_stock_"
	}
	if c.Keep == 0 {
		c.Keep = 24 * time.Hour
	}
	if c.SoldOutFor == 0 {
		c.SoldOutFor = 100 * time.Millisecond
	}
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	switch {
	case c.Keep < time.Second || c.Keep > 10*365*24*time.Hour:
		err = fmt.Errorf("stock: Keep is %v, and not from 1 s to ten years", c.Keep)
	case c.Patience < 0:
		err = fmt.Errorf("stock: Patience is %v", c.Patience)
	case len(c.Prefix) > maxText || strings.ContainsAny(c.Prefix, "{}"):
		err = errors.New("stock: Prefix is too long, or has braces in it")
	}
	return c, err
}

func open(b backend, o *Options) (*Stock, error) {
	options, err := o.checked()
	if err != nil {
		return nil, err
	}
	s := &Stock{backend: b, o: options, unsure: map[[2]string]struct{}{}}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the client; calls that are under way fail with ErrClosed. It does
// not block, and always returns nil.
func (s *Stock) Close() error {
	if !s.closed.Swap(true) {
		s.end()
		s.backend.close()
	}
	return nil
}

func (s *Stock) product(sku string) *product {
	if p, ok := s.products.Load(sku); ok {
		return p.(*product)
	}
	p := &product{reading: make(chan struct{}, 1)}
	p.turn.Store(rand.Uint64() >> 1)
	p.next.Store(rand.Uint64() >> 1)
	first, _ := s.products.LoadOrStore(sku, p)
	return first.(*product)
}

// Set puts a product on sale: so many units, spread evenly over so many shards.
// Repeated with the same numbers it does nothing, so that a Set of unknown
// outcome can be tried again; with others it is ErrExists. It blocks for a
// request to each shard.
func (s *Stock) Set(ctx context.Context, sku string, units int64, shards int) error {
	if err := s.check(sku, units, 0); err != nil {
		return err
	}
	if shards < 1 || shards > MaxShards {
		return fmt.Errorf("stock: %d shards, and not from 1 to %d", shards, MaxShards)
	}
	d := directory{Epoch: 1, Shards: shards, Units: units, First: shards, Keep: s.o.Keep.Milliseconds()}
	d.spread(s.backend.servers(), sku, shards)
	if _, err := s.swap(ctx, sku, nil, d); err != nil {
		return err
	}
	k, err := s.settled(ctx, sku)
	if err != nil {
		return err
	}
	if k.Units != units || k.First != shards {
		return fmt.Errorf("%w: %q was set to %d units in %d shards", ErrExists, sku, k.Units, k.First)
	}
	return nil
}

// spread gives a server to each shard that has none: the one with the fewest,
// beginning where the product's name says, so that not every product begins at
// the first.
func (d *directory) spread(servers int, sku string, shards int) {
	d.At = d.At[:len(d.At):len(d.At)]
	has := make([]int, servers)
	for _, at := range d.At {
		has[at]++
	}
	begin := int(hash(sku) % uint64(servers))
	for len(d.At) < shards {
		best := begin
		for i := range servers {
			if at := (begin + i) % servers; has[at] < has[best] {
				best = at
			}
		}
		has[best]++
		d.At = append(d.At, best)
	}
}

// check refuses what no call could be carried out with.
func (s *Stock) check(sku string, units, least int64) error {
	switch {
	case s.closed.Load():
		return ErrClosed
	case sku == "" || len(sku) > maxText || !utf8.ValidString(sku):
		return fmt.Errorf("stock: the SKU is not 1 to %d bytes of UTF-8", maxText)
	case units < least || units > MaxUnits:
		return fmt.Errorf("stock: %d units, and not from %d to %d", units, least, int64(MaxUnits))
	}
	return nil
}

func checkSale(id string) error {
	if id == "" || len(id) > maxText || !utf8.ValidString(id) {
		return fmt.Errorf("stock: the sale's id is not 1 to %d bytes of UTF-8", maxText)
	}
	return nil
}

// ask sends a request, as often as it takes.
func (s *Stock) ask(ctx context.Context, at shard, q request) (a answer, err error) {
	doubt := false
	err = s.again(ctx, func() (err error) {
		a, err = s.backend.ask(ctx, at, q)
		doubt = doubt || err != nil && driver.ClassOf(err) == driver.Unknown
		return err
	})
	a.doubt = doubt
	if err == nil && a.status == isAbsent {
		err = fmt.Errorf("stock: shard %d of %q is not there: server %d has lost its data", at.i, at.sku, at.server+1)
	}
	return a, err
}

// again calls f until it succeeds, or asking again is no use, or patience has an
// end. A failure is ErrUnknown if any of the tries may have been carried out.
func (s *Stock) again(ctx context.Context, f func() error) error {
	var began time.Time
	unknown := false
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		if s.life.Err() != nil {
			return ErrClosed
		}
		class := driver.ClassOf(err)
		unknown = unknown || class == driver.Unknown
		if began.IsZero() {
			began = time.Now()
		}
		wait := time.NewTimer(pause/2 + rand.N(pause))
		if class != driver.Refused && ctx.Err() == nil && time.Since(began) < s.o.Patience {
			select {
			case <-wait.C:
				continue
			case <-ctx.Done():
			case <-s.life.Done():
			}
		}
		wait.Stop()
		if unknown {
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		if class == driver.Refused {
			return fmt.Errorf("stock: %w", err)
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
