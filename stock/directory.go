package stock

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

// directory says where the shards of a product are and where a sale has its
// home. It is kept at the first server, read once, and read again when a shard
// says that it has changed. It changes by steps that any client can finish, so
// that it does not matter if the one that began them stops.
type directory struct {
	Epoch  int64 // grows with the number of shards that sell
	Shards int   // the first so many sell; sales have their homes there
	At     []int // the server of each shard that there ever was
	Next   int   `json:",omitempty"` // the number of shards that it is changing to
	Filled bool  // the units that were set are in the shards
	Units  int64 // that were set
	First  int   // in how many shards
	Keep   int64 // how long receipts are kept, ms
	Past   []past
}

// past is a number of shards there was before: sales of that time have their
// homes there, for as long as there can be receipts.
type past struct {
	Shards int
	Ended  int64 // by the first server's clock, ms
}

// product is what a client knows of one.
type product struct {
	reading chan struct{} // has room for one, who reads the directory
	dir     atomic.Pointer[known]
	turn    atomic.Uint64 // where the next search for units begins
	next    atomic.Uint64 // where the next id made here has its home

	// sold out: until when to answer without asking, and how much was left.
	empty atomic.Pointer[emptied]
}

type emptied struct {
	until time.Time
	left  int64
}

// known is a directory with the text that it was read from.
type known struct {
	directory
	text []byte
	now  int64     // of the server, when it was read
	read time.Time // when that was asked
}

// stale says whether the past in the directory is worth another look.
func (k *known) stale() bool { return len(k.Past) > 0 && time.Since(k.read) > time.Minute }

func (d *directory) shard(sku string, i int) shard { return shard{sku, i, d.At[i]} }

// home returns the shard that decides a sale.
func (d *directory) home(sale string) int { return jump(hash(sale), d.Shards) }

// former returns the shards where receipts of the sale may be from the time when
// there were more or fewer.
func (d *directory) former(sale string) (is []int) {
	h := hash(sale)
next:
	for _, p := range d.Past {
		i := jump(h, p.Shards)
		if i == jump(h, d.Shards) {
			continue
		}
		for _, have := range is {
			if have == i {
				continue next
			}
		}
		is = append(is, i)
	}
	return is
}

// hash spreads the ids of sales. It must be the same in every client, for ever.
func hash(s string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(s) {
		h ^= uint64(s[i])
		h *= 1099511628211
	}
	h ^= h >> 30 // the finalizer of SplitMix64: FNV's high bits are poor
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}

// jump is the consistent hash of Lamping and Veach: with one shard more, one
// sale in n moves, and it moves to the new one.
func jump(h uint64, n int) int {
	b, j := int64(-1), int64(0)
	for j < int64(n) {
		b = j
		h = h*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(1<<31) / float64(h>>33+1)))
	}
	return int(b)
}

// find returns the directory of a product, which it reads the first time, and
// again when it is the one that was no good.
func (s *Stock) find(ctx context.Context, sku string, bad *known) (*product, *known, error) {
	p := s.product(sku)
	if k := p.dir.Load(); k != nil && k != bad && !k.stale() {
		return p, k, nil
	}
	select {
	case p.reading <- struct{}{}:
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	case <-s.life.Done():
		return nil, nil, ErrClosed
	}
	if k := p.dir.Load(); k != nil && k != bad && !k.stale() {
		return p, k, nil
	}
	k, err := s.settled(ctx, sku)
	if err != nil {
		return nil, nil, err
	}
	p.dir.Store(k)
	return p, k, nil
}

// settled reads a directory and finishes what somebody has begun to change.
func (s *Stock) settled(ctx context.Context, sku string) (*known, error) {
	for {
		k, err := s.read(ctx, sku)
		if err != nil {
			return nil, err
		}
		if k == nil {
			return nil, fmt.Errorf("%w: %q", ErrNoProduct, sku)
		}
		done, err := s.advance(ctx, sku, k)
		if err != nil {
			return nil, err
		}
		if done {
			return k, nil
		}
	}
}

func (s *Stock) read(ctx context.Context, sku string) (*known, error) {
	k := &known{read: time.Now()}
	err := s.again(ctx, func() (err error) {
		k.text, k.now, err = s.backend.directory(ctx, sku)
		return err
	})
	if err != nil || len(k.text) == 0 {
		return nil, err
	}
	if err := json.Unmarshal(k.text, &k.directory); err != nil {
		return nil, fmt.Errorf("stock: the directory of %q: %w", sku, err)
	}
	for _, at := range k.At {
		if at >= s.backend.servers() {
			return nil, fmt.Errorf("stock: %q has shards on %d servers, and Open was given %d: all clients need the same list", sku, at+1, s.backend.servers())
		}
	}
	for i := 0; i < len(k.Past); i++ {
		if k.Past[i].Ended+k.Keep+pastSlack.Milliseconds() < k.now {
			k.Past = append(k.Past[:i], k.Past[i+1:]...)
			i--
		}
	}
	return k, nil
}

// pastSlack is for how much longer receipts are looked for than they are kept:
// a little more than the clocks of the servers may differ.
const pastSlack = time.Hour

// advance makes one step of a change, and says whether there was none to make.
// Before a directory with another number of shards can be read, every shard has
// been told its epoch, and refuses those who still go by the one before. So
// nothing is sold at two homes.
func (s *Stock) advance(ctx context.Context, sku string, k *known) (bool, error) {
	d := k.directory
	switch {
	case !d.Filled:
		for i := range d.First {
			units := d.Units / int64(d.First)
			if int64(i) < d.Units%int64(d.First) {
				units++
			}
			q := request{op: opPlace, epoch: d.Epoch, units: units, flag: true}
			if _, err := s.ask(ctx, d.shard(sku, i), q); err != nil {
				return false, err
			}
		}
		d.Filled = true
	case d.Next != 0:
		for i := range d.At {
			if _, err := s.ask(ctx, d.shard(sku, i), request{op: opPlace, epoch: d.Epoch + 1}); err != nil {
				return false, err
			}
		}
		d.Epoch++
		d.Past = append(d.Past[:len(d.Past):len(d.Past)], past{d.Shards, k.now})
		d.Shards, d.Next = d.Next, 0
	default:
		return true, nil
	}
	_, err := s.swap(ctx, sku, k.text, d)
	return false, err
}

// swap writes a directory. Whether it or somebody else's was written is seen by
// reading again: an answer may be lost.
func (s *Stock) swap(ctx context.Context, sku string, from []byte, to directory) (ok bool, err error) {
	text, err := json.Marshal(to)
	if err != nil {
		return false, err
	}
	err = s.again(ctx, func() (err error) {
		ok, err = s.backend.swap(ctx, sku, from, text)
		return err
	})
	return ok, err
}
