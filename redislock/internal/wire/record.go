package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// record is a ticket as it is stored beside a queue. Its text is
//
//	1m  minimum  channel  metadata                             an unnamed mutex waits
//	1w  limit  units  minimum  owner  channel  metadata        any other ticket waits
//	1h  limit  units  token  owner  channel  metadata          it holds
//
// with a newline after each but the last; minimum is the minimum token. The 1
// is the version of the layout. A ticket whose client polls has an empty
// channel.
type record struct {
	id           string
	held         bool
	limit, units int64
	token        uint64
	owner        string
	channel      string
	meta         string
}

func (r *record) place() string {
	if r.owner == "" {
		return r.id
	}
	return mark + r.owner
}

func (r *record) entry(id string, left time.Duration) driver.Entry {
	e := driver.Entry{ID: id, Owner: r.owner, State: driver.Waiting, Units: r.units, Left: left, Meta: r.meta}
	if r.held {
		e.State, e.Token = driver.Held, r.token
	}
	return e
}

// parseRecord reads a record. An error means an unknown layout.
func parseRecord(text string) (record, error) {
	bad := driver.Wrap(driver.Refused, ErrForeign)
	f := strings.SplitN(text, "\n", 7)
	r := record{limit: 1, units: 1}
	switch f[0] {
	case "1m":
		if f = strings.SplitN(text, "\n", 4); len(f) != 4 {
			return record{}, bad
		}
		f = []string{"", "1", "1", f[1], "", f[2], f[3]}
	case "1h":
		r.held = true
	case "1w":
	default:
		return record{}, bad
	}
	if len(f) != 7 {
		return record{}, bad
	}
	r.owner, r.channel, r.meta = f[4], f[5], f[6]
	var err1, err2, err3 error
	r.limit, err1 = strconv.ParseInt(f[1], 10, 64)
	r.units, err2 = strconv.ParseInt(f[2], 10, 64)
	r.token, err3 = strconv.ParseUint(f[3], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || r.units < 1 || r.limit < r.units {
		return record{}, bad
	}
	return r, nil
}

// parseHold reads the text stored with the holder of an ordinary mutex: token,
// channel and metadata, with a newline after each but the last.
func parseHold(text string) (token uint64, meta string, err error) {
	f := strings.SplitN(text, "\n", 3)
	if len(f) == 3 {
		if token, err = strconv.ParseUint(f[0], 10, 64); err == nil && token > 0 {
			return token, f[2], nil
		}
	}
	return 0, "", driver.Wrap(driver.Refused, ErrForeign)
}
