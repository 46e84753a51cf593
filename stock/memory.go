package stock

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// memory keeps shards in this process. It is also the specification of the
// Redis scripts: each function here is a branch there. Databases run these
// functions themselves, on the rows that a request needs.
type memory struct {
	mu     sync.Mutex
	began  time.Time
	places int
	dirs   map[string][]byte
	shards map[shard]*memoryShard
}

// memoryShard is one shard.
type memoryShard struct {
	epoch   int64
	dir     []byte // the directory of the epoch
	look    shardState
	transit int64
	seq     map[int]int64   // the number of the last transfer to each other shard
	held    map[string]hold // reservations, lapsed ones included
	book    map[string]entry
	ends    []string // ids of the book, in the order of their first receipts
}

// hold is a reservation. A lapsed one has State Lapsed and is kept until due.
type hold struct {
	Receipt
	due int64
}

// entry is a receipt in the book.
type entry struct {
	Receipt
	end int64
}

func newMemory(places int) *memory {
	return &memory{began: time.Now(), places: places, dirs: map[string][]byte{}, shards: map[shard]*memoryShard{}}
}

func (m *memory) servers() int { return m.places }

// now returns the store's time in milliseconds.
func (m *memory) now() int64 { return time.Since(m.began).Milliseconds() }

func (m *memory) batching() batchBounds { return batchBounds{maxBatch, maxLinger} }

func (m *memory) close() {}

func (m *memory) directory(ctx context.Context, sku string) ([]byte, int64, error) {
	if err := driver.Before(ctx); err != nil {
		return nil, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dirs[sku], m.now(), nil
}

func (m *memory) swap(ctx context.Context, sku string, from, to []byte) (bool, error) {
	if err := driver.Before(ctx); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !bytes.Equal(m.dirs[sku], from) {
		return false, nil
	}
	m.dirs[sku] = bytes.Clone(to)
	return true, nil
}

func (m *memory) ask(ctx context.Context, at shard, q request) (answer, error) {
	if err := driver.Before(ctx); err != nil {
		return answer{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.shards[at]
	if q.op == opPlace {
		c, a := c.place(q, m.now())
		if c != nil {
			m.shards[at] = c
		}
		return a, nil
	}
	if c == nil {
		return answer{status: isAbsent}, nil
	}
	return c.ask(q, m.now()), nil
}

func newMemoryShard() *memoryShard {
	c := &memoryShard{seq: map[int]int64{}, held: map[string]hold{}, book: map[string]entry{}}
	c.look.out, c.look.in = map[int]moved{}, map[int]int64{}
	return c
}

// place tells a shard its epoch, and returns it. A shard that is not there, nil,
// is created.
func (c *memoryShard) place(q request, now int64) (*memoryShard, answer) {
	if c == nil && q.must {
		return nil, answer{status: isAbsent}
	}
	if c != nil && c.epoch < q.epoch-1 {
		return c, answer{status: isMoved, epoch: c.epoch}
	}
	a := answer{status: isPlaced, ends: now}
	if c == nil && q.try {
		return nil, a
	}
	if c == nil {
		c = newMemoryShard()
		if q.flag {
			c.look.free = q.units
		}
	}
	a.epoch = c.epoch
	switch {
	case c.epoch >= q.epoch:
		a.dir = c.dir
	case !q.try:
		c.epoch, c.dir = q.epoch, bytes.Clone(q.dir)
	}
	for _, h := range c.held {
		a.ends = max(a.ends, h.due)
	}
	return c, a
}

func (m *memory) sell(ctx context.Context, at shard, sales []*batchedSale) error {
	if err := driver.Before(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shards[at].sellTogether(sales, m.now())
	return nil
}

// sellTogether carries out a batch. A shard that is not there is nil.
func (c *memoryShard) sellTogether(sales []*batchedSale, now int64) {
	for _, s := range sales {
		switch {
		case c == nil:
			s.answer = answer{status: isAbsent}
		case c.epoch != s.epoch:
			s.answer = answer{status: isMoved, epoch: c.epoch}
		case c.isApart(s.request, now):
			s.answer = answer{status: isApart}
		default:
			s.answer = c.sell(s.request, now)
		}
	}
}

// isApart reports whether a batch leaves out a sale: the shard is short, or the
// id was used before.
func (c *memoryShard) isApart(q request, now int64) bool {
	e, used := c.book[q.sale]
	_, held := c.held[q.sale]
	return q.units > c.look.free || used && e.end > now || held
}

func (c *memoryShard) ask(q request, now int64) answer {
	if c.epoch < q.epoch {
		return answer{status: isMoved, epoch: c.epoch}
	}
	switch q.op {
	case opSell, opAdd:
		return c.sell(q, now)
	case opPull:
		return c.pull(q, now)
	case opAccept:
		c.accept(q.in)
		return answer{status: isDone}
	case opClear:
		if out := c.look.out[q.peer]; out.seq == q.seq {
			c.transit -= out.units
			c.look.version++
			delete(c.look.out, q.peer)
		}
		return answer{status: isDone}
	case opLook:
		c.lapse(q.keep, now)
		l := c.look
		l.epoch = c.epoch
		l.out, l.in = make(map[int]moved), make(map[int]int64)
		for k, v := range c.look.out {
			l.out[k] = v
		}
		for k, v := range c.look.in {
			l.in[k] = v
		}
		return answer{status: isDone, look: l}
	}
	return c.settle(q, now)
}

// receipt returns the receipt of a sale, and whether there is one.
func (c *memoryShard) receipt(q request, now int64) (Receipt, bool) {
	if e, ok := c.book[q.sale]; ok && e.end > now {
		return e.Receipt, true
	}
	if _, ok := c.held[q.sale]; ok {
		c.lapse(q.keep, now)
	}
	h, ok := c.held[q.sale]
	return h.Receipt, ok
}

// write puts a receipt into the book, after removing old ones. All are kept
// equally long, so the first receipts end first; a receipt that is written
// again only delays the removal of those behind it.
func (c *memoryShard) write(q request, now int64, r Receipt) Receipt {
	for len(c.ends) > 0 && c.book[c.ends[0]].end <= now {
		delete(c.book, c.ends[0])
		c.ends = c.ends[1:]
	}
	if _, ok := c.book[q.sale]; !ok {
		c.ends = append(c.ends, q.sale)
	}
	c.book[q.sale] = entry{r, now + q.keep}
	return r
}

func (c *memoryShard) sell(q request, now int64) answer {
	if q.in.seq != 0 {
		c.accept(q.in)
	}
	if c.epoch != q.epoch {
		return answer{status: isMoved, epoch: c.epoch}
	}
	if r, ok := c.receipt(q, now); ok {
		return answer{status: isOld, receipt: r}
	}
	l := &c.look
	if q.op == opAdd {
		l.free += q.units
		l.more += q.units
		l.version++
		return answer{status: isDone, receipt: c.write(q, now, Receipt{Added, q.units})}
	}
	if l.free < q.units {
		c.lapse(q.keep, now)
	}
	if l.free < q.units {
		return answer{status: isShort, free: l.free, transit: c.transit}
	}
	l.free -= q.units
	l.version++
	if q.lease > 0 {
		l.held += q.units
		r := Receipt{Reserved, q.units}
		c.held[q.sale] = hold{r, now + q.lease}
		return answer{status: isDone, receipt: r}
	}
	l.sold += q.units
	return answer{status: isDone, receipt: c.write(q, now, Receipt{Sold, q.units})}
}

// settle finds a sale and carries out q on it.
func (c *memoryShard) settle(q request, now int64) answer {
	r, ok := c.receipt(q, now)
	l := &c.look
	switch {
	case !ok && c.epoch != q.epoch:
		return answer{status: isMoved, epoch: c.epoch}
	case !ok && q.op == opCancel && q.flag:
		return answer{status: isDone, receipt: c.write(q, now, Receipt{State: Cancelled})}
	case !ok:
		return answer{status: isNone}
	case q.op == opConfirm && r.State == Reserved:
		l.held -= r.Units
		l.sold += r.Units
		r.State = Sold
	case q.op == opCancel && r.State == Reserved:
		l.held -= r.Units
		l.free += r.Units
		r.State = Cancelled
	case q.op == opReturn && r.State == Sold:
		l.free += r.Units
		l.back += r.Units
		r.State = Returned
	default:
		return answer{status: isOld, receipt: r}
	}
	l.version++
	delete(c.held, q.sale)
	return answer{status: isDone, receipt: c.write(q, now, r)}
}

// lapse returns the units of reservations whose lease has ended.
func (c *memoryShard) lapse(keep, now int64) {
	for sale, h := range c.held {
		switch {
		case h.due > now:
		case h.State == Lapsed:
			delete(c.held, sale)
		default:
			c.look.free += h.Units
			c.look.held -= h.Units
			c.look.version++
			h.State = Lapsed
			c.held[sale] = hold{h.Receipt, now + keep}
		}
	}
}

// pull takes units out for a transfer. With flag it takes all units that are
// asked for, or none; and half of the shard's units if that is more, so that the
// other shard has some for the next sale. A transfer that is under way is
// answered again.
func (c *memoryShard) pull(q request, now int64) answer {
	if out, ok := c.look.out[q.peer]; ok {
		return answer{status: isTook, move: out}
	}
	l := &c.look
	if l.free < q.units {
		c.lapse(q.keep, now)
	}
	if l.free == 0 || q.flag && l.free < q.units {
		return answer{status: isShort, free: l.free, transit: c.transit}
	}
	n := min(l.free, q.units)
	if q.flag {
		n = max(n, l.free/2)
	}
	c.seq[q.peer]++
	out := moved{seq: c.seq[q.peer], units: n}
	l.out[q.peer] = out
	l.free -= n
	c.transit += n
	l.version++
	return answer{status: isTook, move: out}
}

// accept adds the units of a transfer, unless the transfer was accepted before.
func (c *memoryShard) accept(in moved) {
	if c.look.in[in.from] != in.seq-1 {
		return
	}
	c.look.in[in.from] = in.seq
	c.look.free += in.units
	c.look.version++
}
