package lockserver

import (
	"fmt"
	"time"
)

// Limits bounds what clients can send and hold open. A zero field has the default
// that its comment names.
type Limits struct {
	MinTTL   time.Duration // shortest TTL of a hold: 1 s, or the store's if that is longer
	MaxTTL   time.Duration // longest: 10 min, or the store's if that is shorter
	NameSize int           // bytes of a name: 1,024
	Holds    int           // holds of a principal, waits included: 100,000
	Waiters  int           // waits of a principal: 10,000
	Polls    int           // requests of a principal that wait, and streams: 2,000
}

// Sizes of requests, in bytes.
const (
	maxNoteSize  = 512
	maxBodySize  = 16 << 10
	maxBatchSize = 512 << 10
	maxBatch     = 100 // holds in one request
)

// Times that requests have.
const (
	defaultWait  = 10 * time.Second // of an acquire without wait_ms
	maxWait      = 30 * time.Second
	ioTimeout    = 5 * time.Second // to read a body, and for each write
	beatInterval = 10 * time.Second
	releasedFor  = 2 * time.Minute // how long a released id is remembered
)

// answerLimit returns how long the store has to answer for a hold with a TTL before a
// request is answered without it.
func answerLimit(ttl time.Duration) time.Duration { return min(ttl/8, maxWait) }

// withDefaults returns l with a value in each field.
func (l Limits) withDefaults(minTTL, maxTTL time.Duration) Limits {
	setDefault(&l.MinTTL, max(time.Second, minTTL))
	longest := 10 * time.Minute
	if maxTTL > 0 {
		longest = min(longest, maxTTL)
	}
	setDefault(&l.MaxTTL, max(longest, l.MinTTL))
	setDefault(&l.NameSize, 1024)
	setDefault(&l.Holds, 100_000)
	setDefault(&l.Waiters, 10_000)
	setDefault(&l.Polls, 2_000)
	return l
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// check refuses limits that leave nothing, or that the store does not allow.
func (l Limits) check(minTTL, maxTTL time.Duration) error {
	switch {
	case l.MinTTL < 0 || l.MaxTTL < 0 || l.NameSize < 0 || l.Holds < 0 || l.Waiters < 0 || l.Polls < 0:
		return fmt.Errorf("lockserver: limits: a negative value")
	case l.MinTTL > l.MaxTTL:
		return fmt.Errorf("lockserver: limits: MinTTL %v is above MaxTTL %v", l.MinTTL, l.MaxTTL)
	case l.MinTTL < minTTL || maxTTL > 0 && l.MaxTTL > maxTTL:
		return fmt.Errorf("lockserver: limits: TTLs from %v to %v; the store allows %v to %v", l.MinTTL, l.MaxTTL, minTTL, maxTTL)
	}
	return nil
}
