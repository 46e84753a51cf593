package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Sell sells units under an id: all of them or none. Called again with the same
// id it answers with the same receipt, and nothing more is sold. It blocks for
// one request to one server as a rule, and for one to each shard and a few more
// when units are scarce. It returns
//
//   - nil and the receipt, in state Sold;
//   - ErrSoldOut: fewer are left, and nothing was sold. For a short time this is
//     answered without asking; an id that another process may have sold under
//     before is looked up with Receipt;
//   - ErrConflict: the id was used in another way, and the error has its receipt;
//   - ErrUnknown: it may have been sold: repeat it with the same id, or Cancel;
//   - ErrUnavailable, ErrNoProduct, ErrClosed, bad arguments: nothing was sold.
func (s *Stock) Sell(ctx context.Context, sku string, units int64, saleID string) (Receipt, error) {
	return s.sell(ctx, sku, request{op: opSell, sale: saleID, units: units})
}

// Reserve keeps units for a sale until lease has passed at the server: Confirm
// sells them, Cancel gives them back, and without either they return to stock.
// It is like Sell otherwise; the receipt is in state Reserved, or Sold if it was
// confirmed before. The lease is from 1 ms to 30 days.
func (s *Stock) Reserve(ctx context.Context, sku string, units int64, saleID string, lease time.Duration) (Receipt, error) {
	if lease < time.Millisecond || lease > 30*24*time.Hour {
		return Receipt{}, fmt.Errorf("stock: the lease is %v, and not from 1 ms to 30 days", lease)
	}
	return s.sell(ctx, sku, request{op: opSell, sale: saleID, units: units, lease: lease.Milliseconds()})
}

// Add puts more units into stock, once for each id. Ids of Add and of sales are
// one space: use another prefix. It fails as Sell does.
func (s *Stock) Add(ctx context.Context, sku string, units int64, id string) error {
	_, err := s.sell(ctx, sku, request{op: opAdd, sale: id, units: units})
	return err
}

func (s *Stock) sell(ctx context.Context, sku string, q request) (Receipt, error) {
	if err := errors.Join(s.check(sku, q.units, 1), checkSale(q.sale)); err != nil {
		return Receipt{}, err
	}
	p := s.product(sku)
	key := [2]string{sku, q.sale}
	if q.op == opSell {
		if e := p.empty.Load(); e != nil && q.units > e.left && time.Now().Before(e.until) && s.sure(key) {
			return Receipt{}, &SoldOutError{sku, q.units, e.left}
		}
	}
	r, err := s.place(ctx, sku, q)
	var out *SoldOutError
	switch {
	case errors.As(err, &out):
		if s.o.SoldOutFor > 0 {
			p.empty.Store(&emptied{time.Now().Add(s.o.SoldOutFor), out.Left})
		}
	case errors.Is(err, ErrUnknown):
		s.doubt(key)
		return r, err
	case err == nil && q.op == opAdd:
		p.empty.Store(nil)
	}
	s.trust(key)
	return r, err
}

// place finds the home of a sale and has it decided there.
func (s *Stock) place(ctx context.Context, sku string, q request) (Receipt, error) {
	var bad *known
	for {
		p, k, err := s.find(ctx, sku, bad)
		if err != nil {
			return Receipt{}, err
		}
		q.epoch, q.keep = k.Epoch, k.Keep
		for _, i := range k.former(q.sale) {
			a, err := s.ask(ctx, k.shard(sku, i), request{op: opFind, sale: q.sale, epoch: q.epoch, keep: q.keep})
			if err != nil {
				return Receipt{}, err
			}
			if a.status == isOld {
				return s.judge(sku, q, a)
			}
		}
		a, err := s.gather(ctx, sku, p, k, q)
		if err != nil {
			return Receipt{}, err
		}
		if a.status != isMoved {
			return s.judge(sku, q, a)
		}
		bad = k
	}
}

// judge says whether the receipt is that of the sale that was asked for.
func (s *Stock) judge(sku string, q request, a answer) (Receipt, error) {
	r := a.receipt
	fits := r.Units == q.units
	switch {
	case q.op == opAdd:
		fits = fits && r.State == Added
	case q.lease > 0:
		fits = fits && (r.State == Reserved || r.State == Sold)
	default:
		fits = fits && r.State == Sold
	}
	if !fits {
		return r, &ConflictError{sku, q.sale, r}
	}
	return r, nil
}

// rounds is how often a search for units is begun anew because they were on
// their way from one shard to another.
const rounds = 16

// gather asks the home of a sale, and brings it units as long as it is short and
// others have some. What is brought is the home's as soon as it is there; a
// search that stops anywhere leaves nothing that belongs to nobody.
func (s *Stock) gather(ctx context.Context, sku string, p *product, k *known, q request) (answer, error) {
	home := k.shard(sku, k.home(q.sale))
	a, err := s.ask(ctx, home, q)
	if err != nil || a.status != isShort {
		return a, err
	}
	g := &gathering{s: s, sku: sku, k: k, q: q, home: home, doubt: a.doubt}
	began, done := time.Now(), false
	for round := 0; !done && err == nil; round++ {
		if round > 1 { // others move units about; let them
			err = pause(ctx, time.Duration(min(round, rounds))*time.Millisecond)
		}
		switch {
		case err != nil:
			err = unless(err)
		case round >= rounds && g.left < q.units:
			err = &SoldOutError{sku, q.units, g.left}
		case time.Since(began) > s.o.Patience:
			err = unless(errors.New("others take the units first"))
		default:
			done, a, err = g.round(ctx, int(p.turn.Add(1)%uint64(len(k.At))), a)
		}
	}
	if err != nil && g.doubt && !errors.Is(err, ErrUnknown) {
		// An earlier try that was not answered could find the units that this
		// one has not, when it arrives.
		err = fmt.Errorf("%w: %w", ErrUnknown, notSoldOut{err})
	}
	return a, err
}

// notSoldOut keeps the words of an error, and not what it is.
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

// gathering is a search for the units of one sale.
type gathering struct {
	s    *Stock
	sku  string
	k    *known
	q    request
	home shard
	left int64 // units seen in the last round

	doubt bool // the home was asked in vain, and may hear it yet
}

// decide asks the home.
func (g *gathering) decide(ctx context.Context, q request) (answer, error) {
	a, err := g.s.ask(ctx, g.home, q)
	g.doubt = g.doubt || a.doubt
	return a, err
}

// round asks every shard once: for all the home lacks, and, if none has that,
// for what each has. It is done when the sale is decided, be it that units do not
// suffice.
func (g *gathering) round(ctx context.Context, begin int, short answer) (done bool, a answer, err error) {
	a = short
	has := map[int]int64{}
	under, away := a.transit > 0, error(nil)
	sum := a.free
	for n := range g.k.At {
		i := (begin + n) % len(g.k.At)
		if i == g.home.i {
			continue
		}
		b, err := g.s.ask(ctx, g.k.shard(g.sku, i), request{op: opPull, peer: g.home.i, units: g.q.units - a.free, keep: g.q.keep, flag: true})
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
		if a, err = g.bring(ctx, i, b.move); err != nil || a.status != isShort {
			return true, a, err
		}
		// It was one that somebody had begun, and smaller. What else the shard
		// has is not known.
		sum += a.free - before
		under = true
	}
	g.left = sum
	if sum >= g.q.units {
		return g.scrape(ctx, has, a)
	}
	if away != nil {
		return true, a, unless(away)
	}
	if !under {
		return true, a, &SoldOutError{g.sku, g.q.units, sum}
	}
	// Units that somebody has taken out and not yet brought may be enough.
	if err := g.s.finish(ctx, g.sku, g.k); err != nil {
		return true, a, unless(err)
	}
	a, err = g.decide(ctx, g.q)
	return err != nil || a.status != isShort, a, err
}

// scrape takes what each shard has, from those with the most, until it is enough.
func (g *gathering) scrape(ctx context.Context, has map[int]int64, a answer) (bool, answer, error) {
	from := make([]int, 0, len(has))
	for i, n := range has {
		if n > 0 {
			from = append(from, i)
		}
	}
	slices.SortFunc(from, func(i, j int) int { return int(has[j] - has[i]) })
	for _, i := range from {
		b, err := g.s.ask(ctx, g.k.shard(g.sku, i), request{op: opPull, peer: g.home.i, units: g.q.units - a.free, keep: g.q.keep})
		if err != nil {
			return true, a, unless(err)
		}
		if b.status == isShort {
			continue
		}
		if a, err = g.bring(ctx, i, b.move); err != nil || a.status != isShort {
			return true, a, err
		}
	}
	return false, a, nil
}

// bring finishes a transfer to the home and asks it again, in one step.
func (g *gathering) bring(ctx context.Context, from int, m moved) (answer, error) {
	q := g.q
	q.in = moved{from, m.seq, m.units}
	a, err := g.decide(ctx, q)
	if err != nil {
		return a, err
	}
	// If this fails, the note stays, and whoever sees it will try again.
	_, _ = g.s.ask(ctx, g.k.shard(g.sku, from), request{op: opClear, peer: g.home.i, seq: m.seq})
	return a, nil
}

// unless says that a sale failed for want of another shard. That a transfer is
// of unknown outcome does not make the sale so: it was not tried.
func unless(err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: its home is short of units, and others cannot be asked: %v", ErrUnavailable, err)
}

// sure says whether no earlier call has left the sale unknown.
func (s *Stock) sure(key [2]string) bool {
	if s.doubts.Load() == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, unsure := s.unsure[key]
	return !unsure && len(s.unsure) < maxUnsure
}

// doubt remembers a sale that may have been made, so that its next try is not
// answered without asking. When there are too many, everything is asked.
func (s *Stock) doubt(key [2]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unsure) < maxUnsure {
		s.unsure[key] = struct{}{}
	}
	s.doubts.Store(int64(len(s.unsure)))
}

func (s *Stock) trust(key [2]string) {
	if s.doubts.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsure, key)
	s.doubts.Store(int64(len(s.unsure)))
}
