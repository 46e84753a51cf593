package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// queueKey identifies a local queue. Goroutines with equal keys can take over
// tickets from each other; different keys of one name meet only at the store.
type queueKey struct {
	name   string // with the client's prefix
	limit  int64
	owner  string
	ttl    time.Duration
	units  int32
	manual bool // WithManualRenewal
}

// exclusive queues have at most one held ticket, which is handed on.
func (k *queueKey) exclusive() bool { return int64(k.units) == k.limit && k.owner == "" }

// readers share one ticket while it is fresh.
func (k *queueKey) readers() bool {
	return k.limit == driver.RWLimit && k.units == 1 && k.owner == ""
}
