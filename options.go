package holdfast

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultTTL is the lease of a hold where no WithTTL is given.
const DefaultTTL = 30 * time.Second

// ClientOption sets something for a client: it is given to New or to
// anylock.Open, which report a bad value, or a nil option.
type ClientOption interface{ applyClient(s *settings) }

// Option sets something for a client, or for one lock, where it overrides the
// client's setting: it is given to New, or to Mutex, RWMutex, Semaphore, Multi,
// Do, Once and Lead. New, or each call on the lock, reports a bad value, or a nil
// option.
type Option interface {
	ClientOption
	applyLock(s *settings)
}

// clientOption is an option of clients only.
type clientOption func(*settings)

func (o clientOption) applyClient(s *settings) { o(s) }

// option is an option of clients and locks.
type option func(*settings)

func (o option) applyClient(s *settings) { o(s) }

func (o option) applyLock(s *settings) { o(s) }

type settings struct {
	ttl          time.Duration
	maxHold      time.Duration
	maxWait      time.Duration
	owner        string
	note         string
	holder       Holder // of WithHolder: Host, PID and Via
	waiting      func(Waiting)
	manual       bool
	prefix       string
	observers    []*Observer
	existingSize bool
	// replacesHolder: WithHolder was given, to the client or to the lock.
	replacesHolder bool
	given          givenOptions
	bad            error // of an option that cannot have its effect
}

// givenOptions is the set of options that were given, whatever their values. It
// tells the options of a lock from those of the client.
type givenOptions uint8

const (
	givenTTL givenOptions = 1 << iota
	givenOwner
	givenExistingSize
	givenManual
)

// applyClient sets the values of a client's options, and notes which were given.
func (s *settings) applyClient(opts []ClientOption) error {
	for i, o := range opts {
		if o == nil {
			return nilOption(i, len(opts))
		}
		o.applyClient(s)
	}
	return s.bad
}

// applyLock sets the values of a lock's options, and notes which were given.
func (s *settings) applyLock(opts []Option) error {
	s.given = 0
	for i, o := range opts {
		if o == nil {
			return nilOption(i, len(opts))
		}
		o.applyLock(s)
	}
	return nil
}

func nilOption(i, of int) error {
	return fmt.Errorf("holdfast: option %d of %d is nil", i+1, of)
}

// fitTTL sets a TTL that no option has set to the default, or to the nearest
// value that the store allows.
func (s *settings) fitTTL(t driver.Traits) {
	if s.given&givenTTL != 0 {
		return
	}
	s.ttl = max(DefaultTTL, t.MinTTL)
	if t.MaxTTL > 0 {
		s.ttl = min(s.ttl, t.MaxTTL)
	}
}

// WithTTL sets the lease: how long a holder that died, or that cannot be
// reached, blocks the others. A living holder renews its lease every third of
// the TTL, so work may take longer. Without this option the TTL is 30 s, or the
// nearest value that the store allows (see Client.TTL); a TTL that is given and
// not allowed is an error. A good value is 3 to 5 times the longest pause that
// you expect of the process and the network. A nested lock shares the lease of
// the outer hold, so another TTL for it is an error.
func WithTTL(d time.Duration) Option {
	return option(func(s *settings) { s.ttl, s.given = d, s.given|givenTTL })
}

// WithMaxHold bounds how long one hold may last, renewals included. At the
// bound the hold ends, and its context with it, with a *LostError. The lock is
// kept until Unlock, so that the work can stop before the next holder begins, but
// for no longer than a third of the TTL, at most 5 s and at least 100 ms. 0, the
// default, is no bound. WithMaxHold frees a lock from a worker that hangs while
// its process lives. The bound of a nested hold ends that hold and the holds
// nested in it, but not the outer one.
func WithMaxHold(d time.Duration) Option {
	return option(func(s *settings) { s.maxHold = d })
}

// WithMaxWait bounds how long Lock, RLock, Acquire, Do and Once wait for their
// turn, not the work. A wait that reaches the bound ends with a *WaitError that matches
// ErrMaxWait and ErrHeld; no ticket is left at the store. The bound counts from
// the call, and includes the wait for a store that is slow or not ready. For a
// Multi it bounds the wait for all names together. The context of the call ends
// the wait too, if it ends first. Try calls do not wait, and Client.Lead ignores
// the bound. 0, the default, is no bound.
func WithMaxWait(d time.Duration) Option {
	return option(func(s *settings) { s.maxWait = d })
}

// WithOwner names the owner of the lock. All holders with one owner hold
// together, across processes and restarts: an owner names a job, never a
// service that has many workers. A name has at most 256 bytes and no control
// characters. Semaphores have no owners. A nested lock has the owner of the
// outer hold, so another owner for it is an error.
func WithOwner(name string) Option {
	return option(func(s *settings) { s.owner, s.given = name, s.given|givenOwner })
}

// WithNote adds a text for people who inspect the lock: at most 512 bytes
// without control characters. The store keeps the note in the clear; put no
// secrets there. The note of a nested lock is not stored: the outer hold's note
// stays.
func WithNote(text string) Option {
	return option(func(s *settings) { s.note = text })
}

// WithHolder sets what the store shows of the client to others, in Inspect, in
// Done.By and in the errors of those who wait: Host, PID and Via, each as given,
// instead of this process's own; other fields are ignored. It is for servers that
// hold locks on behalf of other processes. Host has at most 256 bytes, Via at most
// 512, both without control characters; PID is not negative. The holder of a nested
// lock is not stored: the outer hold's stays.
func WithHolder(h Holder) Option {
	return option(func(s *settings) {
		s.holder, s.replacesHolder = Holder{Host: h.Host, PID: h.PID, Via: h.Via}, true
	})
}

// WithPrefix puts a prefix before every name, so that programs can share a
// store without sharing names. Names and Inspect return names without the
// prefix.
func WithPrefix(prefix string) ClientOption {
	return clientOption(func(s *settings) { s.prefix = prefix })
}

// WithObserver adds an Observer of the client's events. Given several times, all
// Observers receive each event, in the order of the options. New refuses a nil
// one.
func WithObserver(o *Observer) ClientOption {
	return clientOption(func(s *settings) {
		if o == nil {
			s.bad = errors.New("holdfast: the Observer is nil")
			return
		}
		s.observers = append(s.observers, o)
	})
}

// WithExistingSize makes a semaphore adopt the size that its queue has at the
// store, instead of failing with ErrKindMismatch, while other clients use the
// name with another size. It is for the time in which a new size is rolled out.
// Given to New, the option applies to all semaphores of the client; given to
// another kind of lock, it is an error.
func WithExistingSize() Option {
	return option(func(s *settings) { s.existingSize, s.given = true, s.given|givenExistingSize })
}

func (s *settings) check(t driver.Traits) error {
	switch {
	case s.ttl <= 0:
		return fmt.Errorf("holdfast: TTL %v is not positive", s.ttl)
	case s.ttl < t.MinTTL:
		return fmt.Errorf("holdfast: TTL %v is below this store's minimum of %v", s.ttl, t.MinTTL)
	case t.MaxTTL > 0 && s.ttl > t.MaxTTL:
		return fmt.Errorf("holdfast: TTL %v is above this store's maximum of %v", s.ttl, t.MaxTTL)
	case s.maxHold < 0:
		return fmt.Errorf("holdfast: MaxHold %v is negative", s.maxHold)
	case s.maxWait < 0:
		return fmt.Errorf("holdfast: MaxWait %v is negative", s.maxWait)
	case len(s.note) > maxNote:
		return fmt.Errorf("holdfast: note is %d bytes long; the maximum is %d", len(s.note), maxNote)
	case !utf8.ValidString(s.note):
		return fmt.Errorf("holdfast: note is not valid UTF-8")
	case strings.ContainsFunc(s.note, unicode.IsControl):
		return fmt.Errorf("holdfast: note contains a control character")
	case s.holder.PID < 0:
		return fmt.Errorf("holdfast: holder: PID %d is negative", s.holder.PID)
	case s.owner != "" && !t.Owner:
		return fmt.Errorf("holdfast: named owners: %w", ErrUnsupported)
	}
	if err := driver.CheckOwner(s.owner); err != nil {
		return fmt.Errorf("holdfast: %w", err)
	}
	return s.holder.check()
}
