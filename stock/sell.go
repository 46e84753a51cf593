package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Sell sells units under an id: all of them or none. A repeated call with the
// same id returns the same receipt, and sells nothing more. It usually blocks
// for one request to one server; when units are scarce, for one request to each
// shard and a few more. It returns
//
//   - nil and the receipt, in state Sold;
//   - ErrSoldOut: fewer units are left, and nothing was sold. For a short time
//     this client repeats the answer without a request; use Receipt to look up an
//     id that another process may have sold before;
//   - ErrConflict: the id was used in another way, and the error has its receipt;
//   - ErrUnknown: the units may have been sold: repeat the call with the same id,
//     or Cancel it;
//   - ErrUnavailable, ErrNoProduct, ErrClosed, bad arguments: nothing was sold.
func (s *Stock) Sell(ctx context.Context, sku string, units int64, saleID string) (Receipt, error) {
	return s.sell(ctx, sku, request{op: opSell, sale: saleID, units: units})
}

// Reserve keeps units for a sale until lease has passed at the server. Confirm
// sells them, Cancel returns them, and without either they return to stock.
// Otherwise it is like Sell. The receipt is in state Reserved, or Sold if it
// was confirmed before. The lease is from 1 ms to 30 days.
func (s *Stock) Reserve(ctx context.Context, sku string, units int64, saleID string, lease time.Duration) (Receipt, error) {
	if lease < time.Millisecond || lease > maxLease {
		return Receipt{}, fmt.Errorf("stock: the lease is %v, and not from 1 ms to 30 days", lease)
	}
	return s.sell(ctx, sku, request{op: opSell, sale: saleID, units: units, lease: lease.Milliseconds()})
}

// Add puts more units into stock, once for each id. Ids of Add and ids of sales
// share one space: use another prefix. It fails as Sell does.
func (s *Stock) Add(ctx context.Context, sku string, units int64, id string) error {
	_, err := s.sell(ctx, sku, request{op: opAdd, sale: id, units: units})
	return err
}

func (s *Stock) sell(ctx context.Context, sku string, q request) (Receipt, error) {
	if err := errors.Join(s.check(sku, q.units, 1), checkSale(q.sale)); err != nil {
		return Receipt{}, err
	}
	p := s.directories.product(sku)
	key := [2]string{sku, q.sale}
	if q.op == opSell {
		if e := p.empty.Load(); e != nil && q.units > e.left && time.Now().Before(e.until) && s.uncertain.isFresh(key) {
			return Receipt{}, &SoldOutError{sku, q.units, e.left}
		}
	}
	r, err := s.place(ctx, sku, q)
	var out *SoldOutError
	switch {
	case errors.As(err, &out):
		if s.o.SoldOutFor > 0 {
			p.empty.Store(&soldOutUntil{time.Now().Add(s.o.SoldOutFor), out.Left})
		}
	case errors.Is(err, ErrUnknown):
		s.uncertain.add(key)
		return r, err
	case err == nil && q.op == opAdd:
		p.empty.Store(nil)
	}
	s.uncertain.remove(key)
	return r, err
}

// place finds the home of a sale, which decides the sale.
func (s *Stock) place(ctx context.Context, sku string, q request) (Receipt, error) {
	var bad *outdatedError
next:
	for {
		p, k, err := s.directories.find(ctx, sku, bad)
		if err != nil {
			return Receipt{}, err
		}
		q.epoch, q.keep = k.Epoch, k.Keep
		for _, i := range k.former(q.sale) {
			a, err := s.sender.ask(ctx, k.shard(sku, i), request{op: opFind, sale: q.sale, epoch: q.epoch, keep: q.keep})
			if err != nil {
				return Receipt{}, err
			}
			if a.status == isOld {
				return judge(sku, q, a)
			}
			if a.status == isMoved {
				bad = &outdatedError{k, i, a.epoch}
				continue next
			}
		}
		a, err := s.gather(ctx, sku, p, k, q)
		if err != nil {
			return Receipt{}, err
		}
		if a.status != isMoved {
			return judge(sku, q, a)
		}
		bad = &outdatedError{k, k.home(q.sale), a.epoch}
	}
}

// judge checks that the receipt is that of the requested sale.
func judge(sku string, q request, a answer) (Receipt, error) {
	r := a.receipt
	want := Sold
	if q.op == opAdd {
		want = Added
	}
	if r.Units != q.units || r.State != want && !(q.lease > 0 && r.State == Reserved) {
		return r, &ConflictError{sku, q.sale, r}
	}
	return r, nil
}

// rounds is the number of rounds after which a search for units takes a
// shortage as final, although units are under way between shards.
const rounds = 16

// gather asks the home of a sale, and brings units to it as long as it is short
// and other shards have some. Units belong to the home as soon as they arrive.
// A search can stop anywhere and leave no units without a shard.
func (s *Stock) gather(ctx context.Context, sku string, p *productCache, k *knownDirectory, q request) (answer, error) {
	home := k.shard(sku, k.home(q.sale))
	a, err := s.sender.decide(ctx, k, home, q)
	if err != nil || a.status != isShort {
		return a, err
	}
	g := &unitSearch{sender: &s.sender, sku: sku, k: k, q: q, home: home, doubt: a.doubt}
	began, done := time.Now(), false
	for round := 0; !done && err == nil; round++ {
		if round > 1 { // other clients are moving units: let them
			err = pause(ctx, time.Duration(min(round, rounds))*time.Millisecond)
		}
		switch {
		case err != nil:
			err = notSoldBecause(err)
		case round >= rounds && g.left < q.units:
			err = &SoldOutError{sku, q.units, g.left}
		case time.Since(began) > s.o.Patience:
			err = notSoldBecause(errors.New("others take the units first"))
		default:
			done, a, err = g.round(ctx, int(p.turn.Add(1)%uint64(len(k.At))), a)
		}
	}
	if err != nil && g.doubt && !errors.Is(err, ErrUnknown) {
		// An earlier try without an answer may still arrive, and find the units
		// that this one did not.
		err = fmt.Errorf("%w: %w", ErrUnknown, notSoldOut{err})
	}
	return a, err
}

// notSoldOut keeps the text of an error, and hides its identity.
type notSoldOut struct{ error }

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unitSearch is a search for the units of one sale.
type unitSearch struct {
	sender *sender
	sku    string
	k      *knownDirectory
	q      request
	home   shard
	left   int64 // units seen in the last round

	doubt bool // a request to the home had no answer, and may still arrive
}

// decide sends q to the home.
func (g *unitSearch) decide(ctx context.Context, q request) (answer, error) {
	a, err := g.sender.ask(ctx, g.home, q)
	g.doubt = g.doubt || a.doubt
	return a, err
}

// round asks every shard once: for all units that the home lacks, and, if no
// shard has as many, for what each has. It is done when the sale is decided,
// also when the units do not suffice.
func (g *unitSearch) round(ctx context.Context, begin int, short answer) (done bool, a answer, err error) {
	a = short
	has := map[int]int64{}
	under, away := a.transit > 0, error(nil)
	sum := a.free
	for n := range g.k.At {
		i := (begin + n) % len(g.k.At)
		if i == g.home.i {
			continue
		}
		b, err := g.sender.ask(ctx, g.k.shard(g.sku, i), request{op: opPull, epoch: g.k.Epoch, peer: g.home.i, units: g.q.units - a.free, keep: g.q.keep, flag: true})
		if err != nil {
			away = errors.Join(away, err)
			continue
		}
		if b.status == isShort {
			has[i] = b.free
			sum += b.free
			under = under || b.transit > 0
			continue
		}
		before := a.free
		if a, err = g.transferHome(ctx, i, b.move); err != nil || a.status != isShort {
			return true, a, err
		}
		// This was a smaller transfer that another client had begun. The rest
		// of the shard's units is not known.
		sum += a.free - before
		under = true
	}
	g.left = sum
	if sum >= g.q.units {
		return g.takeFromEach(ctx, has, a)
	}
	if away != nil {
		return true, a, notSoldBecause(away)
	}
	if !under {
		return true, a, &SoldOutError{g.sku, g.q.units, sum}
	}
	// Units that another client has taken out and not yet delivered may be
	// enough.
	if err := g.sender.finish(ctx, g.sku, g.k); err != nil {
		return true, a, notSoldBecause(err)
	}
	a, err = g.decide(ctx, g.q)
	return err != nil || a.status != isShort, a, err
}

// takeFromEach takes the units of each shard, the largest first, until there
// are enough.
func (g *unitSearch) takeFromEach(ctx context.Context, has map[int]int64, a answer) (bool, answer, error) {
	from := make([]int, 0, len(has))
	for i, n := range has {
		if n > 0 {
			from = append(from, i)
		}
	}
	slices.SortFunc(from, func(i, j int) int { return int(has[j] - has[i]) })
	for _, i := range from {
		b, err := g.sender.ask(ctx, g.k.shard(g.sku, i), request{op: opPull, epoch: g.k.Epoch, peer: g.home.i, units: g.q.units - a.free, keep: g.q.keep})
		if err != nil {
			return true, a, notSoldBecause(err)
		}
		if b.status == isShort {
			continue
		}
		if a, err = g.transferHome(ctx, i, b.move); err != nil || a.status != isShort {
			return true, a, err
		}
	}
	return false, a, nil
}

// transferHome finishes a transfer to the home and repeats the sale's request
// there, in one step.
func (g *unitSearch) transferHome(ctx context.Context, from int, m moved) (answer, error) {
	q := g.q
	q.in = moved{from, m.seq, m.units}
	a, err := g.decide(ctx, q)
	if err != nil {
		return a, err
	}
	// If this fails, the note stays, and the next client that sees it tries
	// again.
	_, _ = g.sender.ask(ctx, g.k.shard(g.sku, from), request{op: opClear, epoch: g.k.Epoch, peer: g.home.i, seq: m.seq})
	return a, nil
}

// notSoldBecause returns the error of a sale that failed because another shard
// did not answer. A transfer of unknown outcome does not make the sale's
// outcome unknown: the sale was not tried.
func notSoldBecause(err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: its home is short of units, and others cannot be asked: %v", ErrUnavailable, err)
}
