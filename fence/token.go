// Package fence refuses the late writes of holders that have lost their lock.
//
// A process can be paused after its last look at its lock and before its write.
// When it wakes up, another may hold, and no lock can keep the write from
// arriving. The resource can: it remembers the highest token that has written,
// and refuses what comes with a lower one. This package has that check in
// memory; the packages below it have it for
//
//   - redisfence: keys in Redis, by a script
//   - sqlfence: rows in PostgreSQL, MySQL, MariaDB or SQLite, in a transaction
//   - httpfence: what is behind an HTTP server, by a header
//
// Which to take follows from where the resource is: the check and the write have
// to be one step. A check in one place and a write in another leave a gap
// between them, in which a process can be paused like before.
//
// The package does not know locks. A token is a number that grows with every
// exclusive grant, as Hold.Token and holdfast.Token return it.
package fence

import (
	"errors"
	"fmt"
)

// Token is what a holder shows with its write.
type Token struct {
	// Value is the number of the grant: what Hold.Token returns. Zero is no
	// token; every guard refuses it with ErrNoToken.
	Value uint64

	// Owner tells apart two holders that show one number. That happens only
	// when a store has lost its data and its clock was set back; but then it
	// happens. It is the name given to holdfast.WithOwner, or else anything that
	// no other holder uses, such as an id that the process makes when it starts.
	// All holds of one named owner have one number and one name, and pass
	// together. Empty is a name like others, so that two holders without one are
	// not told apart.
	Owner string

	// Shared marks the token of a reader of an RWMutex. It is refused after a
	// later writer, and never raises the guard, since several readers hold at
	// once. A semaphore's token orders nothing that a guard could use; shown as
	// shared, it passes.
	Shared bool
}

// String returns the number, with the owner if there is one.
func (t Token) String() string {
	if t.Owner == "" {
		return fmt.Sprint(t.Value)
	}
	return fmt.Sprintf("%d of %q", t.Value, t.Owner)
}

// ErrStale is what a guard refuses a token with; the error is a *StaleError. The
// holder's lock is over, whatever it believed. It has to stop: to repeat the
// write is of no use, and to take the lock anew means to begin the work anew.
var ErrStale = errors.New("fence: the token is not the latest")

// ErrNoToken is the answer to a token of zero: the caller did not hold a lock,
// or asked the context for another name than it locked. It is a mistake in the
// program.
var ErrNoToken = errors.New("fence: no token, the caller holds no lock")

// StaleError says why a token was refused. It matches ErrStale.
type StaleError struct {
	Name    string // of the guarded thing; empty where the guard has none
	Given   Token  // what was refused
	Highest Token  // what the guard had seen
}

// Error says which token came after which.
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

// Twin says that the number was the latest one, but another owner's: the store
// that gave it out has lost its memory. Lower numbers are the usual case.
func (e *StaleError) Twin() bool { return e.Given.Value == e.Highest.Value }

// Admit is the rule of every guard: whether t may write when highest is the
// latest that has. The error is nil, ErrNoToken, or a *StaleError without a
// name. A guard that admits a token which is not shared remembers it. Admit is
// for guards in places that this module does not know; it keeps nothing.
func Admit(highest, t Token) error {
	switch {
	case t.Value == 0:
		return ErrNoToken
	case t.Value > highest.Value, t.Value == highest.Value && t.Owner == highest.Owner:
		return nil
	}
	return &StaleError{Given: t, Highest: highest}
}
