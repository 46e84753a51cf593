package holdfast

import (
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// ticketIDs makes the ids of a client's tickets.
type ticketIDs struct {
	client string // random
	serial atomic.Uint64
}

// next returns an unused id, and the metadata of a ticket made now. Both are
// parts of one string, which saves an allocation.
func (ids *ticketIDs) next(m metaEncoder, now time.Time) (id, meta string) {
	var b strings.Builder
	var num [20]byte
	b.Grow(len(ids.client) + 1 + 2*len(num) + len(m.head) + len(m.tail))
	b.WriteString(ids.client)
	b.WriteByte(':')
	b.Write(strconv.AppendUint(num[:0], ids.serial.Add(1), 10))
	n := b.Len()
	m.write(&b, now)
	return b.String()[:n], b.String()[n:]
}
