package holdfast

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
)

// DefaultTTL is the lease of a hold when WithTTL says nothing.
const DefaultTTL = 30 * time.Second

// Option sets something for a client (given to New) or for one lock (given to
// Mutex, RWMutex, Semaphore, Multi and Do, where it overrides the client's). A
// bad value is reported by New, or by the first call on the lock.
type Option func(*settings)

type settings struct {
	ttl       time.Duration
	maxHold   time.Duration
	owner     string
	note      string
	prefix    string
	observer  *Observer
	lineLimit bool
}

// WithTTL sets the lease: how long a holder that died, or that cannot be
// reached, blocks the others. A holder that lives renews it every third of it,
// so work may take longer. Default 30 s. A good value is 3 to 5 times the
// longest pause that the process and the network are expected to make, and not
// below the store's minimum.
func WithTTL(d time.Duration) Option { return func(s *settings) { s.ttl = d } }

// WithMaxHold bounds how long one hold may last, renewals included: then it is
// given up and its context ends with a *LostError. 0, the default, is no bound.
// It frees a lock from a worker that hangs while its process lives.
func WithMaxHold(d time.Duration) Option { return func(s *settings) { s.maxHold = d } }

// WithOwner names the owner of the lock. All holders with one owner hold
// together, across processes and restarts: it names a job, never a service
// that has many workers. At most 256 bytes without control characters.
// Semaphores have no owners.
func WithOwner(name string) Option { return func(s *settings) { s.owner = name } }

// WithNote adds a text for people who look at who holds the lock: at most 512
// bytes without control characters. It is stored in the clear; put no secrets there.
func WithNote(text string) Option { return func(s *settings) { s.note = text } }

// WithPrefix puts a prefix before every name, so that programs can share a
// store without sharing names. Names returned by Names and Inspect are without
// it. Only for New.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithObserver sets who is told about events. Only for New.
func WithObserver(o *Observer) Option { return func(s *settings) { s.observer = o } }

// WithLineLimit makes a semaphore take the size that its line has at the store
// while others use it with another size than asked for, instead of failing
// with ErrKindMismatch: for the time in which a new size is rolled out.
func WithLineLimit() Option { return func(s *settings) { s.lineLimit = true } }

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
	case len(s.note) > maxNote:
		return fmt.Errorf("holdfast: note has %d bytes, the most is %d", len(s.note), maxNote)
	case !utf8.ValidString(s.note):
		return fmt.Errorf("holdfast: note is not valid UTF-8")
	case strings.ContainsFunc(s.note, unicode.IsControl):
		return fmt.Errorf("holdfast: note contains a control character")
	case s.owner != "" && !t.Owner:
		return fmt.Errorf("holdfast: named owners: %w", ErrUnsupported)
	}
	if err := driver.CheckOwner(s.owner); err != nil {
		return fmt.Errorf("holdfast: %w", err)
	}
	return nil
}
