// Package stock sells products in high demand: one product's units, split over
// shards that sell in parallel, on one Redis, on a Redis Cluster, on PostgreSQL,
// MySQL or MariaDB (NewSQL), or on several servers that know nothing of each
// other.
//
//	st, err := stock.Open(ctx, nil, "redis://a:6379", "redis://b:6379", "redis://c:6379")
//	…
//	err = st.Set(ctx, "phone", 100_000, 6) // once
//	…
//	receipt, err := st.Sell(ctx, "phone", 1, order.ID)
//
// A sale has an id, which the caller chooses: the number of the order. Each id
// is sold once, however often and by however many processes Sell is called with
// it, after whatever crash or lost answer. No unit is sold twice, lost or
// invented as long as the servers keep what they have acknowledged.
//
// The id determines the shard that is the sale's home. The home decides the
// sale, in one step of one server. Ids of NewSaleID have their homes at one
// shard after the other, beginning with a random one. A home that is short of
// units receives some from other shards: from the next shard that has enough,
// in turn, or from several if none has. Units that arrive and are not needed
// stay there, for any other sale. docs/stock.md has the reasons, and the
// requirements for servers.
package stock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// Options are the settings of a Stock. The zero value, and nil, are the
// defaults.
type Options struct {
	// Prefix begins all keys, or the names of all tables; empty is
	// "holdfast_stock_".
	Prefix string
	// Keep is the time for which the receipt of a sale is kept after its last
	// change, at least a second; 0 is 24 hours. During that time a sale can be
	// repeated, returned and looked up; afterwards its id is as good as new.
	// Set fixes the time for a product.
	Keep time.Duration
	// SoldOutFor is the time after an answer of "sold out" for which this
	// client repeats that answer without a request. 0 is 100 ms; a negative
	// value switches this off. Units that come back to stock are found that
	// much later.
	SoldOutFor time.Duration
	// Patience is the time for which a call is retried when a server does not
	// answer or cannot be reached; 0 is 5 s. The call's context may end it
	// earlier.
	Patience time.Duration
}

const (
	// MaxUnits is the maximum number of units in one Set, Add or sale.
	MaxUnits = 1_000_000_000
	// MaxShards is the maximum number of shards of a product.
	MaxShards = 256

	maxText     = 256 // length of a SKU or of a sale's id, in bytes
	maxUnsure   = 1 << 16
	answerLimit = 2 * time.Second
)

// Stock is a client. It is safe for concurrent use.
type Stock struct {
	o      Options
	closed atomic.Bool
	end    context.CancelFunc // of the sender's life

	sender      sender
	directories directories
	uncertain   uncertainSales
}

// Open opens a client for servers at the URLs, of the form
//
//	redis://[user:password@]host:port[/database]
//
// or rediss for TLS; a node of a cluster stands for the whole cluster. The URL
// "memory:" alone is a store in this process, of this Stock only.
//
// The order of the servers determines where shards are: all clients must use
// the same list, and it may only grow at its end. Open blocks until all servers
// have answered. No error contains a password.
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

// New returns a client that uses the program's own Redis clients, one for each
// server or cluster; see Open. Close does not close them.
func New(o *Options, clients ...rueidis.Client) (*Stock, error) {
	if len(clients) == 0 {
		return nil, errors.New("stock: no client")
	}
	options, err := o.checked()
	if err != nil {
		return nil, err
	}
	return open(&redisServers{prefix: options.Prefix, clients: clients}, o)
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
	life, end := context.WithCancel(context.Background())
	s := &Stock{o: options, end: end, sender: sender{b, options.Patience, life}, uncertain: uncertainSales{sales: map[[2]string]struct{}{}}}
	s.directories.sender = &s.sender
	return s, nil
}

// Close ends the client. Calls that are under way fail with ErrClosed. It does
// not block, and always returns nil.
func (s *Stock) Close() error {
	if !s.closed.Swap(true) {
		s.end()
		s.sender.backend.close()
	}
	return nil
}

// Set puts a product on sale: the given number of units, spread evenly over the
// given number of shards. Repeated with the same numbers it does nothing, so a
// Set of unknown outcome can be tried again; with other numbers it returns
// ErrExists. It blocks for a request to each shard.
func (s *Stock) Set(ctx context.Context, sku string, units int64, shards int) error {
	if err := s.check(sku, units, 0); err != nil {
		return err
	}
	if shards < 1 || shards > MaxShards {
		return fmt.Errorf("stock: %d shards, and not from 1 to %d", shards, MaxShards)
	}
	d := directory{Epoch: 1, Shards: shards, Units: units, First: shards, Keep: s.o.Keep.Milliseconds()}
	d.spread(s.sender.backend.servers(), sku, shards)
	if _, err := s.directories.swap(ctx, sku, nil, d); err != nil {
		return err
	}
	k, err := s.directories.readFinished(ctx, sku)
	if err != nil {
		return err
	}
	if k.Units != units || k.First != shards {
		return fmt.Errorf("%w: %q was set to %d units in %d shards", ErrExists, sku, k.Units, k.First)
	}
	return nil
}

// spread assigns a server to each shard that has none: the server with the
// fewest shards. It begins at a server that depends on the product's name, so
// that not every product begins at the first.
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

// check refuses arguments that no call can carry out.
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
