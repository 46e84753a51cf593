package stock

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// directory records where the shards of a product are, and by that the home of
// each sale. It is kept at the first server, read once, and read again when a
// shard reports that it has changed. It changes by steps that any client can
// finish, so it does no harm if the client that began a change stops.
type directory struct {
	Epoch  int64 // grows with each change of the number of selling shards
	Shards int   // shards 0 to Shards-1 sell, and are the homes of sales
	At     []int // the server of each shard, former shards included
	Next   int   `json:",omitempty"` // the number of shards after the change in progress; 0: none
	Filled bool  // the units of Set are in the shards
	Units  int64 // the units of Set
	First  int   // the number of shards of Set
	Keep   int64 // how long a receipt is kept, ms
	Made   int   `json:",omitempty"` // the number of shards, former ones included, before the last change
	Past   []earlierShards
}

// earlierShards is an earlier number of shards. Sales of that time have their
// homes there, as long as receipts of them can exist.
type earlierShards struct {
	Shards int
	Ended  int64 // the end of the last reservation of that time, ms
}

// pastSlack is the time for which clients still look for receipts that have
// ended: a little more than the clocks of the servers may differ.
const pastSlack = time.Hour

// receiptsEnded reports whether no receipt of that time is left. The last
// change of a receipt is a return, within Keep of the sale, and the sale is
// within the lease of its reservation.
func (p earlierShards) receiptsEnded(k *knownDirectory) bool {
	return p.Ended+2*k.Keep+pastSlack.Milliseconds() < k.now
}

// productCache is a client's knowledge of one product.
type productCache struct {
	reading chan struct{} // capacity 1: held by the goroutine that reads the directory
	dir     atomic.Pointer[knownDirectory]
	turn    atomic.Uint64 // the shard where the next search for units begins
	next    atomic.Uint64 // the home of the next id from NewSaleID

	// empty is nil or a recent answer of "sold out", which this client repeats
	// for a while.
	empty atomic.Pointer[soldOutUntil]
}

type soldOutUntil struct {
	until time.Time
	left  int64
}

// knownDirectory is a directory together with the text that it was read from.
type knownDirectory struct {
	directory
	text []byte
	now  int64     // the server's time at the read
	read time.Time // the client's time at the read

	batchers []batcher // of each shard's sales under this directory
}

// needsRead reports whether the directory is old, and has earlier numbers of
// shards that may have ended since.
func (k *knownDirectory) needsRead() bool { return len(k.Past) > 0 && time.Since(k.read) > time.Minute }

func (d *directory) shard(sku string, i int) shard { return shard{sku, i, d.At[i]} }

// home returns the shard that decides a sale.
func (d *directory) home(sale string) int { return jump(hash(sale), d.Shards) }

// former returns the shards that may have receipts of the sale from a time with
// another number of shards.
func (d *directory) former(sale string) (is []int) {
	h := hash(sale)
	for _, p := range d.Past {
		if i := jump(h, p.Shards); i != jump(h, d.Shards) && !slices.Contains(is, i) {
			is = append(is, i)
		}
	}
	return is
}

// hash spreads the ids of sales. It must never change, and be the same in every
// client.
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

// jump is the consistent hash of Lamping and Veach: when the number of shards
// grows from n-1 to n, one sale in n moves, and it moves to the new shard.
func jump(h uint64, n int) int {
	b, j := int64(-1), int64(0)
	for j < int64(n) {
		b = j
		h = h*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(1<<31) / float64(h>>33+1)))
	}
	return int(b)
}

// outdatedError is the error for an outdated directory: a shard has a later
// epoch.
type outdatedError struct {
	*knownDirectory
	shard int
	epoch int64 // the shard's epoch
}

// Error names both epochs.
func (o *outdatedError) Error() string {
	return fmt.Sprintf("its directory is of epoch %d, and shard %d of epoch %d", o.Epoch, o.shard, o.epoch)
}

// by reports whether k is outdated as well.
func (o *outdatedError) by(k *knownDirectory) bool {
	return o != nil && (o.knownDirectory == k || k.Epoch < o.epoch)
}

// directories are the directories of products, as one client knows them. It reads
// and changes them with the sender.
type directories struct {
	sender   *sender
	products sync.Map // *productCache by SKU
}

// product returns the cache of a product.
func (s *directories) product(sku string) *productCache {
	if p, ok := s.products.Load(sku); ok {
		return p.(*productCache)
	}
	p := &productCache{reading: make(chan struct{}, 1)}
	p.turn.Store(rand.Uint64() >> 1)
	p.next.Store(rand.Uint64() >> 1)
	first, _ := s.products.LoadOrStore(sku, p)
	return first.(*productCache)
}

// find returns the directory of a product. It reads the directory the first
// time, and again if bad is set, the outdated one. A directory that is older
// than its shards, as after a restore, is repaired from their copies.
func (s *directories) find(ctx context.Context, sku string, bad *outdatedError) (*productCache, *knownDirectory, error) {
	p := s.product(sku)
	if k := p.dir.Load(); k != nil && !bad.by(k) && !k.needsRead() {
		return p, k, nil
	}
	select {
	case p.reading <- struct{}{}:
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	case <-s.sender.life.Done():
		return nil, nil, ErrClosed
	}
	if k := p.dir.Load(); k != nil && !bad.by(k) && !k.needsRead() {
		return p, k, nil
	}
	k, err := s.readFinished(ctx, sku)
	if err == nil && bad == nil && p.dir.Load() == nil {
		bad = s.findLaterDirectory(ctx, sku, k)
	}
	if err == nil && bad != nil && k.Epoch < bad.epoch {
		if err = s.raiseEpoch(ctx, sku, k); err == nil {
			k, err = s.readFinished(ctx, sku)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if bad != nil && k.Epoch < bad.epoch {
		return nil, nil, fmt.Errorf("%w: the directory of %q is of epoch %d, and shard %d of epoch %d", ErrUnavailable, sku, k.Epoch, bad.shard, bad.epoch)
	}
	p.dir.Store(k)
	return p, k, nil
}

// A client that reads a directory for the first time asks up to glanceShards
// shards for their epochs, and waits for their answers no longer than
// glanceTimeout.
const (
	glanceShards  = 16
	glanceTimeout = 200 * time.Millisecond
)

// findLaterDirectory asks shards for their epochs, and returns an error for the
// first shard with a later directory. Without this check, a directory that was
// restored together with a shard would agree with that shard, and units sold
// since would be sold there again. A shard that does not answer is ignored.
func (s *directories) findLaterDirectory(ctx context.Context, sku string, k *knownDirectory) *outdatedError {
	ctx, cancel := context.WithTimeout(ctx, glanceTimeout)
	defer cancel()
	shards := rand.Perm(k.Shards)
	epochs := make([]int64, min(len(shards), glanceShards))
	var asking sync.WaitGroup
	for n := range epochs {
		asking.Go(func() {
			a, err := s.sender.backend.ask(ctx, k.shard(sku, shards[n]), request{op: opLook, epoch: k.Epoch, keep: k.Keep})
			if err == nil && a.status != isAbsent {
				epochs[n] = a.look.epoch
			}
		})
	}
	asking.Wait()
	for n, epoch := range epochs {
		if epoch > k.Epoch {
			return &outdatedError{k, shards[n], epoch}
		}
	}
	return nil
}

// readFinished reads a directory and finishes a change that is in progress.
func (s *directories) readFinished(ctx context.Context, sku string) (*knownDirectory, error) {
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

func (s *directories) read(ctx context.Context, sku string) (*knownDirectory, error) {
	k := &knownDirectory{read: time.Now()}
	err := s.sender.again(ctx, func() (err error) {
		k.text, k.now, err = s.sender.backend.directory(ctx, sku)
		return err
	})
	if err != nil || len(k.text) == 0 {
		return nil, err
	}
	if err := json.Unmarshal(k.text, &k.directory); err != nil {
		return nil, fmt.Errorf("stock: the directory of %q: %w", sku, err)
	}
	for _, at := range k.At {
		if at >= s.sender.backend.servers() {
			return nil, fmt.Errorf("stock: %q has shards on %d servers, and Open was given %d: all clients need the same list", sku, at+1, s.sender.backend.servers())
		}
	}
	k.batchers = make([]batcher, len(k.At))
	k.Past = slices.DeleteFunc(k.Past, func(p earlierShards) bool { return p.receiptsEnded(k) })
	return k, nil
}

// swap writes a directory if its text is still from. An answer may be lost, so
// the caller reads the directory again to see whose was written.
func (s *directories) swap(ctx context.Context, sku string, from []byte, to directory) (ok bool, err error) {
	text, err := json.Marshal(to)
	if err != nil {
		return false, err
	}
	err = s.sender.again(ctx, func() (err error) {
		ok, err = s.sender.backend.swap(ctx, sku, from, text)
		return err
	})
	return ok, err
}
