package natslock

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// layout is the number of the records' layout, in the field that tells them from
// values of other programs.
const layout = 1

// record is the queue of one name, as the bucket keeps it. Times are those of
// the server's clock, in nanoseconds since 1970.
type record struct {
	Layout int              `json:"holdfast"`
	Name   string           `json:"name"`
	Limit  int64            `json:"limit,omitempty"`
	Token  uint64           `json:"token,omitempty"` // the last one granted
	Places []*place         `json:"places,omitempty"`
	Gone   map[string]int64 `json:"gone,omitempty"` // tombstones: since when
}

// place is an owner's share in a queue. The places that hold come first.
type place struct {
	Owner    string    `json:"owner,omitempty"`
	Units    int64     `json:"units"`
	Token    uint64    `json:"token,omitempty"` // 0: the place waits
	MinToken uint64    `json:"min,omitempty"`
	Tickets  []*ticket `json:"tickets"`
}

type ticket struct {
	ID     string        `json:"id"`
	Meta   string        `json:"meta,omitempty"`
	TTL    time.Duration `json:"ttl"`
	Expiry int64         `json:"expiry"`
	Push   string        `json:"push"` // the address of the driver that joined it
}

func (p *place) held() bool { return p.Token != 0 }

// lastExpiry returns when the place is dropped unless it is renewed.
func (p *place) lastExpiry() int64 {
	last := p.Tickets[0].Expiry
	for _, t := range p.Tickets[1:] {
		last = max(last, t.Expiry)
	}
	return last
}

// held returns the number of places that hold, and the units they have.
func (q *record) held() (places int, units int64) {
	for _, p := range q.Places {
		if !p.held() {
			break
		}
		places++
		units += p.Units
	}
	return places, units
}

// find returns the place and the ticket of this id, or nil.
func (q *record) find(id string) (*place, *ticket) {
	for _, p := range q.Places {
		for _, t := range p.Tickets {
			if t.ID == id {
				return p, t
			}
		}
	}
	return nil, nil
}

// ofOwner returns the place of a named owner, or nil.
func (q *record) ofOwner(owner string) *place {
	for _, p := range q.Places {
		if p.Owner == owner {
			return p
		}
	}
	return nil
}

// holder returns the metadata of the first ticket that holds.
func (q *record) holder() string {
	if len(q.Places) == 0 || !q.Places[0].held() {
		return ""
	}
	return q.Places[0].Tickets[0].Meta
}

// decode reads a record, which has to be that of name. A value that is none, or
// is of a later layout, is an error of class Refused.
func decode(key, name string, data []byte) (*record, error) {
	q := new(record)
	if err := json.Unmarshal(data, q); err != nil || q.Layout == 0 {
		return nil, driver.Errorf(driver.Refused, "key %s: the value is not a lock's record", key)
	}
	if q.Layout > layout {
		return nil, driver.Errorf(driver.Refused, "key %s: a later version of Holdfast wrote the record: its layout is %d, this version knows %d; upgrade this program first", key, q.Layout, layout)
	}
	if q.Layout != layout {
		return nil, driver.Errorf(driver.Refused, "key %s: the record has layout %d; this version of Holdfast reads layout %d", key, q.Layout, layout)
	}
	if name != "" && q.Name != name {
		return nil, driver.Errorf(driver.Refused, "key %s: the record is that of another name", key)
	}
	for i, p := range q.Places {
		if p == nil || len(p.Tickets) == 0 || slices.Contains(p.Tickets, nil) || i > 0 && p.held() && !q.Places[i-1].held() {
			return nil, driver.Errorf(driver.Refused, "key %s: the record is damaged", key)
		}
	}
	return q, nil
}

// encode writes the record.
func (q *record) encode() ([]byte, error) {
	b, err := json.Marshal(q)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, fmt.Errorf("encode a record: %w", err))
	}
	return b, nil
}

// keepFor returns the time after which the server may remove the record unless
// it is written again: its tickets and its tombstones have expired by then. It
// is 0 for a record that has to stay, because its token is ahead of the clock and
// the next one could repeat it.
func (q *record) keepFor(now int64) time.Duration {
	end := now
	for _, p := range q.Places {
		end = max(end, p.lastExpiry())
	}
	keep := time.Duration(end-now) + 2*tombstoneTTL
	if driver.NextToken(0, 0, time.Unix(0, now).Add(keep)) <= q.Token {
		return 0
	}
	return (keep + time.Second - 1).Truncate(time.Second)
}
