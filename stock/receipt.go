package stock

import (
	"context"
	"errors"
	"fmt"
)

// Receipt returns the receipt of a sale, or ErrNoSale if there is none. It
// changes nothing. A process that takes over another's work learns from it
// which sales were made. It blocks for one request.
func (s *Stock) Receipt(ctx context.Context, sku, saleID string) (Receipt, error) {
	a, err := s.settle(ctx, sku, saleID, opFind)
	return a.receipt, err
}

// Confirm sells a reservation. It also returns nil if the sale was confirmed or
// sold before. It returns ErrNoSale if the id is not known, and ErrConflict,
// with the receipt, if the reservation has lapsed or was cancelled, or the sale
// was returned.
func (s *Stock) Confirm(ctx context.Context, sku, saleID string) error {
	return s.changeState(ctx, sku, saleID, opConfirm, Sold)
}

// Cancel makes sure that nothing is sold under an id. It ends a reservation,
// and bars an id that is not known, so that a Sell that is still on its way is
// refused. It returns ErrConflict if the id was sold; see Return.
func (s *Stock) Cancel(ctx context.Context, sku, saleID string) error {
	err := s.changeState(ctx, sku, saleID, opCancel, Cancelled)
	if c, ok := errors.AsType[*ConflictError](err); ok && c.Receipt.State == Lapsed {
		return nil // a lapsed id is never sold either
	}
	return err
}

// Return puts the units of a sale back into stock, once. It also returns nil if
// they were returned before. It returns ErrNoSale if the sale is not known or
// its receipt has ended, and ErrConflict if the id was not sold.
func (s *Stock) Return(ctx context.Context, sku, saleID string) error {
	err := s.changeState(ctx, sku, saleID, opReturn, Returned)
	if err == nil {
		s.directories.product(sku).empty.Store(nil)
	}
	return err
}

// changeState moves a sale to state to, if it is not in that state already.
func (s *Stock) changeState(ctx context.Context, sku, saleID string, what op, to State) error {
	a, err := s.settle(ctx, sku, saleID, what)
	if err == nil && a.receipt.State != to {
		err = &ConflictError{sku, saleID, a.receipt}
	}
	if err == nil || errors.Is(err, ErrConflict) {
		s.uncertain.remove([2]string{sku, saleID})
	}
	return err
}

// settle asks the shards that can have the receipt. Former homes come first,
// because no new receipts are written there.
func (s *Stock) settle(ctx context.Context, sku, saleID string, what op) (answer, error) {
	if err := errors.Join(s.check(sku, 0, 0), checkSale(saleID)); err != nil {
		return answer{}, err
	}
	var bad *outdatedError
next:
	for {
		_, k, err := s.directories.find(ctx, sku, bad)
		if err != nil {
			return answer{}, err
		}
		for _, i := range append(k.former(saleID), k.home(saleID)) {
			home := i == k.home(saleID)
			a, err := s.sender.ask(ctx, k.shard(sku, i), request{op: what, sale: saleID, epoch: k.Epoch, keep: k.Keep, flag: home})
			switch {
			case err != nil:
				return a, err
			case a.status == isMoved:
				bad = &outdatedError{k, i, a.epoch}
				continue next
			case a.status != isNone:
				return a, nil
			}
		}
		return answer{}, fmt.Errorf("%w: %q of %q", ErrNoSale, saleID, sku)
	}
}
