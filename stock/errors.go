package stock

import (
	"errors"
	"fmt"
)

// The errors, by the caller's next action. An error of the store itself is a
// *driver.Error, whose class has more details.
var (
	// ErrSoldOut means that fewer units are left than were asked for; nothing
	// was sold. The error is a *SoldOutError.
	ErrSoldOut = errors.New("stock: sold out")
	// ErrUnknown means that the store has not answered, and that the request
	// may have been carried out, or may be later. Repeat it with the same id
	// until the answer is another, or Cancel it.
	ErrUnknown = errors.New("stock: the outcome is not known")
	// ErrUnavailable means that the store cannot be reached or does not serve,
	// and that nothing was done.
	ErrUnavailable = errors.New("stock: the store is not available")
	// ErrConflict means that the call does not fit the id's history: it was
	// used with another number of units, was cancelled, has lapsed, or was
	// sold. The error is a *ConflictError, which has the receipt.
	ErrConflict = errors.New("stock: the sale's id says otherwise")
	// ErrNoSale means that the id is not known: it was never used, or its
	// receipt has ended.
	ErrNoSale = errors.New("stock: no such sale")
	// ErrNoProduct means that Set was never called for the product.
	ErrNoProduct = errors.New("stock: no such product")
	// ErrExists means that the product was set before, with other numbers. See
	// Add and Rebalance.
	ErrExists = errors.New("stock: the product exists")
	// ErrUnbalanced means that Total has found more or fewer units than there
	// can be. The store has lost or changed data.
	ErrUnbalanced = errors.New("stock: the units do not add up")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("stock: closed")
)

// SoldOutError is an ErrSoldOut with the number of units left.
type SoldOutError struct {
	SKU   string
	Asked int64
	Left  int64 // could be sold when the shards were asked
}

// Error names the units asked for and the units left.
func (e *SoldOutError) Error() string {
	return fmt.Sprintf("stock: %q has %d left, %d were asked for", e.SKU, e.Left, e.Asked)
}

// Is makes errors.Is(err, ErrSoldOut) true.
func (e *SoldOutError) Is(target error) bool { return target == ErrSoldOut }

// ConflictError is an ErrConflict with the receipt of the sale.
type ConflictError struct {
	SKU, Sale string
	Receipt   Receipt
}

// Error describes the receipt.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("stock: sale %q of %q is %s, with %d units", e.Sale, e.SKU, e.Receipt.State.word(), e.Receipt.Units)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// State is the state of a sale.
type State string

// The states of a sale. The last four are final.
const (
	Reserved  State = "r" // its units are kept for it until its lease ends
	Sold      State = "s"
	Returned  State = "b" // it was sold, and its units came back
	Cancelled State = "c" // nothing is sold under its id, now or later
	Lapsed    State = "l" // its reservation ended unconfirmed
	Added     State = "a" // not a sale, but the id of an Add
)

func (s State) word() string {
	switch s {
	case Reserved:
		return "reserved"
	case Sold:
		return "sold"
	case Returned:
		return "returned"
	case Cancelled:
		return "cancelled"
	case Lapsed:
		return "lapsed"
	case Added:
		return "added"
	}
	return fmt.Sprintf("in state %q", string(s))
}

// Receipt is the record of a sale.
type Receipt struct {
	State State
	Units int64 // sold, reserved or added; 0 for an id that was barred
}
