// Package fence refuses the late writes of holders that have lost their lock.
//
// A process can be paused after its last check of its lock and before its
// write. When it wakes up, another process may hold the lock, and no lock can
// keep the late write from arriving. The resource can refuse it: it remembers
// the highest token that has written, and refuses every lower one. This package
// has that check in memory; the packages below it have it for
//
//   - redisfence: keys in Redis, by a script
//   - sqlfence: rows in PostgreSQL, MySQL, MariaDB or SQLite, in a transaction
//   - httpfence: resources behind an HTTP server, by a header
//
// Choose the package by where the resource is: the check and the write must be
// one step. A check in one place and a write in another leave a gap between
// them, in which a process can be paused as before.
//
// The package does not know locks. A token is a number that grows with every
// exclusive grant, as Hold.Token and holdfast.Token return it.
package fence

import (
	"errors"
	"fmt"
)

// Token is the fencing token that a holder sends with its write.
type Token struct {
	// Value is the number of the grant: what Hold.Token returns. Zero is no
	// token; every guard refuses it with ErrNoToken.
	Value uint64

	// Owner distinguishes two holders with the same number. Two holders can
	// have the same number only after a store has lost its data and its clock
	// was set back. Owner is the name given to holdfast.WithOwner, or else any
	// text that no other holder uses, such as an id that the process makes when
	// it starts. All holds of one named owner have one number and one name, and
	// pass together. The empty Owner is a name like others, so two holders
	// without an owner are not distinguished.
	Owner string

	// Shared marks the token of a reader of an RWMutex. It is refused after a
	// later writer, and never raises the guard, because several readers hold at
	// once. The tokens of a semaphore have no order that a guard could use;
	// marked as shared, they pass.
	Shared bool
}

// String returns the number, with the owner if there is one.
func (t Token) String() string {
	if t.Owner == "" {
		return fmt.Sprint(t.Value)
	}
	return fmt.Sprintf("%d of %q", t.Value, t.Owner)
}

// ErrStale is the error with which a guard refuses a token; it is a
// *StaleError. The holder has lost its lock, even if it believes otherwise. It
// must stop: repeating the write is useless, and taking the lock again means
// beginning the work again.
var ErrStale = errors.New("fence: the token is not the latest")

// ErrNoToken is the error for a token of zero: the caller did not hold a lock,
// or asked the context for another name than it locked. It is a mistake in the
// program.
var ErrNoToken = errors.New("fence: no token, the caller holds no lock")

// StaleError is an ErrStale with the reason for the refusal.
type StaleError struct {
	Name    string // of the guarded thing; empty if the guard has no name
	Given   Token  // the refused token
	Highest Token  // the highest token that the guard had seen
}

// Error names the two tokens.
func (e *StaleError) Error() string {
	name := ""
	if e.Name != "" {
		name = fmt.Sprintf(" for %q", e.Name)
	}
	if e.Twin() {
		return fmt.Sprintf("fence: token %v%s was already used as %v", e.Given, name, e.Highest)
	}
	return fmt.Sprintf("fence: token %v%s came after %v", e.Given, name, e.Highest)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Twin reports whether the number was the latest one, but another owner's: the
// store that granted it has lost its data. Usually the refused number is lower.
func (e *StaleError) Twin() bool { return e.Given.Value == e.Highest.Value }

// Admit applies the rule of every guard: it checks whether t may write when
// highest is the latest token that has written. The error is nil, ErrNoToken,
// or a *StaleError without a name. A guard that admits a token remembers it,
// unless the token is shared. Admit itself remembers nothing. It is for guards
// in places that this module does not support.
func Admit(highest, t Token) error {
	switch {
	case t.Value == 0:
		return ErrNoToken
	case t.Value > highest.Value, t.Value == highest.Value && t.Owner == highest.Owner:
		return nil
	}
	return &StaleError{Given: t, Highest: highest}
}
