package stock

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// memory keeps shards in this process. It is also the specification of what the
// scripts do on Redis: one function here is one branch there.
type memory struct {
	mu     sync.Mutex
	began  time.Time
	places int
	dirs   map[string][]byte
	shards map[shard]*cell
}

// cell is one shard.
type cell struct {
	epoch   int64
	look    look
	transit int64
	seq     map[int]int64   // of the last transfer to each other shard
	held    map[string]hold // reservations, and those that lapsed
	book    map[string]entry
	ends    []string // ids of the book, in the order in which they end
}

// hold is a reservation; one that lapsed has State Lapsed and is kept until due.
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
	return &memory{began: time.Now(), places: places, dirs: map[string][]byte{}, shards: map[shard]*cell{}}
}

func (m *memory) servers() int { return m.places }

// now is the store's clock in milliseconds.
func (m *memory) now() int64 { return time.Since(m.began).Milliseconds() }

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
		if c == nil {
			c = &cell{seq: map[int]int64{}, held: map[string]hold{}, book: map[string]entry{}}
			c.look.out, c.look.in = map[int]moved{}, map[int]int64{}
			m.shards[at] = c
			if q.flag {
				c.look.free = q.units
			}
		}
		c.epoch = max(c.epoch, q.epoch)
		return answer{status: isDone}, nil
	}
	if c == nil {
		return answer{status: isAbsent}, nil
	}
	return c.ask(q, m.now()), nil
}

func (c *cell) ask(q request, now int64) answer {
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

// receipt returns what is known of a sale.
func (c *cell) receipt(q request, now int64) (Receipt, bool) {
	if e, ok := c.book[q.sale]; ok && e.end > now {
		return e.Receipt, true
	}
	if _, ok := c.held[q.sale]; ok {
		c.lapse(q.keep, now)
	}
	h, ok := c.held[q.sale]
	return h.Receipt, ok
}

// write puts a receipt into the book. All are kept equally long, so that they
// end in the order in which they were written.
func (c *cell) write(q request, now int64, r Receipt) Receipt {
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

func (c *cell) sell(q request, now int64) answer {
	if q.in.seq != 0 {
		c.accept(q.in)
	}
	if c.epoch != q.epoch {
		return answer{status: isMoved}
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

// settle finds a sale, and does with it what is to be done.
func (c *cell) settle(q request, now int64) answer {
	r, ok := c.receipt(q, now)
	l := &c.look
	switch {
	case !ok && c.epoch != q.epoch:
		return answer{status: isMoved}
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

// lapse gives the units of reservations back whose lease has ended.
func (c *cell) lapse(keep, now int64) {
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

// pull takes units out. It takes more than is needed, half of what is there, so
// that who comes next to the other shard finds some. One that is under way is
// answered again.
func (c *cell) pull(q request, now int64) answer {
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

// accept puts units in, unless the transfer was accepted before.
func (c *cell) accept(in moved) {
	if c.look.in[in.from] != in.seq-1 {
		return
	}
	c.look.in[in.from] = in.seq
	c.look.free += in.units
	c.look.version++
}
