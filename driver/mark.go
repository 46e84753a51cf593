package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Marker is implemented by drivers that keep a few bytes for a name, apart from
// its queue. A driver has the methods exactly if its Traits say Marks. The core
// reads and writes marks for its Once.
//
// Names are those of Join; Driver 1 to 5 and Close 3 hold for marks as well.
type Marker interface {
	// Mark returns the mark of a name: the last that SetMark kept.
	//
	//  1. It sees every SetMark that was answered before a grant, of any ticket
	//     in the queue of that name, that this client has learnt of.
	//  2. It changes nothing, and leaves nothing behind for a name without a mark.
	//  3. A name without a mark has the zero Mark; that is no error.
	Mark(ctx context.Context, name string) (Mark, error)

	// SetMark replaces the mark of a name in one step.
	//
	//  1. A mark whose Token is below that of the mark there is refused with
	//     [ErrStaleMark], and changes nothing. An equal Token replaces the Value.
	//  2. The same mark again is no error.
	//  3. The store keeps an answered mark as well as its other data, for at least
	//     [MarkTTL] after the last SetMark, whatever becomes of tickets, leases
	//     and sessions.
	//  4. It touches no ticket, and Names, Inspect and Break do not see marks.
	//  5. A record of another program in the mark's place is an error of class
	//     Refused, also of Mark, and is not overwritten.
	//  6. Guaranteed: 0 < m.Token, and the Value has at most [MaxMark] bytes.
	SetMark(ctx context.Context, name string, m Mark) error
}

// Mark is the record that a [Marker] keeps for a name. The zero Mark is that of a
// name without one.
type Mark struct {
	Token uint64 // of the hold under which it was written, as the core counts it
	Value []byte // opaque to stores
}

// MaxMark is the longest Value of a Mark, in bytes.
const MaxMark = 4096

// MarkTTL is the shortest time for which a store keeps a mark after its last
// change: a job that runs once a year finds the mark of the year before.
const MarkTTL = 400 * 24 * time.Hour

// ErrStaleMark is returned by SetMark if the mark there has a greater token: a
// later holder has written it.
var ErrStaleMark = errors.New("a later holder has set the mark")

// CheckMark returns an error when SetMark may not be called with m.
func CheckMark(m Mark) error {
	switch {
	case m.Token == 0:
		return errors.New("mark has no token")
	case len(m.Value) > MaxMark:
		return fmt.Errorf("mark is %d bytes long; the maximum is %d", len(m.Value), MaxMark)
	}
	return nil
}
