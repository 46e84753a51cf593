package stock

import (
	"context"
	"errors"
	"fmt"
)

// Receipt returns what is known of a sale: ErrNoSale if nothing is. It changes
// nothing, and is how a process that takes over another's work finds out which
// sales were made. It blocks for one request.
func (s *Stock) Receipt(ctx context.Context, sku, saleID string) (Receipt, error) {
	a, err := s.settle(ctx, sku, saleID, opFind)
	return a.receipt, err
}

// Confirm sells what was reserved. It is nil also when the sale was sold before,
// ErrNoSale when nothing is known of it, and ErrConflict, with the receipt, when
// the reservation has lapsed or was cancelled, or the sale returned.
func (s *Stock) Confirm(ctx context.Context, sku, saleID string) error {
	return s.become(ctx, sku, saleID, opConfirm, Sold)
}

// Cancel sees to it that nothing is sold under an id: it ends a reservation, and
// bars an id of which nothing is known, so that a Sell that is still on its way
// is refused. It is ErrConflict for what was sold; see Return.
func (s *Stock) Cancel(ctx context.Context, sku, saleID string) error {
	err := s.become(ctx, sku, saleID, opCancel, Cancelled)
	if c, ok := errors.AsType[*ConflictError](err); ok && c.Receipt.State == Lapsed {
		return nil // a lapsed id is never sold either
	}
	return err
}

// Return puts the units of a sale back into stock, once. It is nil also when
// they were returned before, ErrNoSale when nothing is known of the sale, whose
// receipt may have ended, and ErrConflict when it was not sold.
func (s *Stock) Return(ctx context.Context, sku, saleID string) error {
	err := s.become(ctx, sku, saleID, opReturn, Returned)
	if err == nil {
		s.product(sku).empty.Store(nil)
	}
	return err
}

// become makes a sale what it is to be, unless it is.
func (s *Stock) become(ctx context.Context, sku, saleID string, what op, to State) error {
	a, err := s.settle(ctx, sku, saleID, what)
	if err == nil && a.receipt.State != to {
		err = &ConflictError{sku, saleID, a.receipt}
	}
	if err == nil || errors.Is(err, ErrConflict) {
		s.trust([2]string{sku, saleID})
	}
	return err
}

// settle asks the shards that can have the receipt: the former homes first,
// since nothing new is written there.
func (s *Stock) settle(ctx context.Context, sku, saleID string, what op) (answer, error) {
	if err := errors.Join(s.check(sku, 0, 0), checkSale(saleID)); err != nil {
		return answer{}, err
	}
	var bad *known
next:
	for {
		_, k, err := s.find(ctx, sku, bad)
		if err != nil {
			return answer{}, err
		}
		for _, i := range append(k.former(saleID), k.home(saleID)) {
			home := i == k.home(saleID)
			a, err := s.ask(ctx, k.shard(sku, i), request{op: what, sale: saleID, epoch: k.Epoch, keep: k.Keep, flag: home})
			switch {
			case err != nil:
				return a, err
			case a.status == isMoved:
				bad = k
				continue next
			case a.status != isNone:
				return a, nil
			}
		}
		return answer{}, fmt.Errorf("%w: %q of %q", ErrNoSale, saleID, sku)
	}
}
