package stock

import (
	"errors"
	"fmt"
)

// The errors, by what the caller does next. What the store says itself comes as
// a *driver.Error, whose class tells more.
var (
	// ErrSoldOut: there are fewer units left than asked for; nothing was sold.
	// The error is a *SoldOutError.
	ErrSoldOut = errors.New("stock: sold out")
	// ErrUnknown: the store has not answered, and the request may have been
	// carried out or be carried out yet. Repeat it with the same id until the
	// answer is another, or Cancel it.
	ErrUnknown = errors.New("stock: the outcome is not known")
	// ErrUnavailable: the store cannot be reached or does not serve, and nothing
	// was done.
	ErrUnavailable = errors.New("stock: the store is not available")
	// ErrConflict: the id has another history than the call is for: it was used
	// with another number of units, was cancelled, has lapsed, or was sold. The
	// error is a *ConflictError, which has the receipt.
	ErrConflict = errors.New("stock: the sale's id says otherwise")
	// ErrNoSale: nothing is known of the id. It was never used, or its receipt
	// has ended.
	ErrNoSale = errors.New("stock: no such sale")
	// ErrNoProduct: Set was never called for it.
	ErrNoProduct = errors.New("stock: no such product")
	// ErrExists: the product was set before, with other numbers. See Add and
	// Rebalance.
	ErrExists = errors.New("stock: the product exists")
	// ErrUnbalanced: Total has found more or fewer units than there can be. The
	// store has lost or changed data.
	ErrUnbalanced = errors.New("stock: the units do not add up")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("stock: closed")
)

// SoldOutError says how much was left. It matches ErrSoldOut.
type SoldOutError struct {
	SKU   string
	Asked int64
	Left  int64 // that could be sold, when the shards were asked
}

// Error says what was asked for and what is left.
func (e *SoldOutError) Error() string {
	return fmt.Sprintf("stock: %q has %d left, %d were asked for", e.SKU, e.Left, e.Asked)
}

// Is makes errors.Is(err, ErrSoldOut) true.
func (e *SoldOutError) Is(target error) bool { return target == ErrSoldOut }

// ConflictError has what is known of a sale that is not as the call expects. It
// matches ErrConflict.
type ConflictError struct {
	SKU, Sale string
	Receipt   Receipt
}

// Error says what the receipt says.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("stock: sale %q of %q is %s, with %d units", e.Sale, e.SKU, e.Receipt.State.word(), e.Receipt.Units)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// State is what has become of a sale.
type State string

// The states of a sale. The last four are final.
const (
	Reserved  State = "r" // its units are kept for it until its lease ends
	Sold      State = "s"
	Returned  State = "b" // it was sold, and its units came back
	Cancelled State = "c" // nothing is or will be sold under its id
	Lapsed    State = "l" // its reservation ended unconfirmed
	Added     State = "a" // it is no sale, but the id of an Add
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

// Receipt is what is known of a sale.
type Receipt struct {
	State State
	Units int64 // that were sold, reserved or added; 0 for an id that was barred
}
