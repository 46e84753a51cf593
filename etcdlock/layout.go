package etcdlock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// layout makes keys, all below one prefix. The keys outside queues begin with
// '%' and a small letter, which no encoded name does.
type layout struct{ prefix string }

// plain keeps the bytes of names that a key contains unchanged: all but the
// slash, which would put one queue inside another (F62), and characters that a
// terminal does not show.
var plain = driver.Charset{
	Plain: func(b byte) bool { return b >= ' ' && b != 0x7f && b != '/' },
	Max:   3 * driver.MaxName,
}

// queue returns the prefix of the keys of a queue.
func (l layout) queue(name string) string { return l.prefix + plain.Encode(name) + "/" }

// layoutKey has, after the prefix, the version of the layout of the whole prefix, a
// number. A version that cannot share the prefix with this one writes it; this one only
// reads it.
const layoutKey = "%layout"

// wake returns the key that carries the wake-ups of a lease's client.
func (l layout) wake(lease string) string { return l.prefix + "%w/" + lease }

// tomb returns the key of a ticket's tombstone, which keeps it from joining.
func (l layout) tomb(id string) string { return l.prefix + "%t/" + id }

// index returns the key that names the place of an owner in a queue.
func (l layout) index(name, owner string) string {
	return l.prefix + "%o/" + plain.Encode(name) + "/" + plain.Encode(owner)
}

// members returns the prefix of the keys of an owner's tickets, or of the
// tickets of all owners in the queue if owner is empty.
func (l layout) members(name, owner string) string {
	p := l.prefix + "%m/" + plain.Encode(name) + "/"
	if owner != "" {
		p += plain.Encode(owner) + "/"
	}
	return p
}

// after returns the end of the range of all keys that begin with p.
func after(p string) string { return p[:len(p)-1] + string(p[len(p)-1]+1) }

func hex(lease int64) string { return strconv.FormatInt(lease, 16) }

// kind returns the prefix, after the queue's own, of the keys of places with a
// limit. Keys of mutexes begin with the lease, as in etcd's own recipe; the
// other kinds sort behind every lease.
func kind(limit int64) string {
	switch limit {
	case 1:
		return ""
	case driver.RWLimit:
		return "rw-"
	}
	return "s" + strconv.FormatInt(limit, 16) + "-"
}

// others returns the ranges of a queue that would contain places with another
// limit.
func others(queue string, limit int64) [][2]string {
	if limit == 1 {
		return [][2]string{{queue + "g", after(queue)}}
	}
	k := queue + kind(limit)
	return [][2]string{{queue, k}, {after(k), after(queue)}}
}

// recipe returns the key that etcd's own recipe would use.
func recipe(queue string, lease string) string { return queue + lease }

// placeKey returns the key of any other place. The id tells the places of one
// lease apart; it is "=" for the place of an owner.
func placeKey(queue string, limit, units int64, lease, id string) string {
	if limit == 1 {
		return queue + lease + "-" + id
	}
	return queue + kind(limit) + strconv.FormatInt(units, 16) + "-" + lease + "-" + id
}

// record is the value of our keys. Its first line is the version of the layout;
// a value without it is not ours.
type record struct {
	id    string // empty for the place of a named owner
	owner string
	ttl   time.Duration
	meta  string
}

const version = "hf1\n"

func (r record) encode() string {
	return version + r.id + "\n" + strconv.FormatInt(r.ttl.Milliseconds(), 10) + "\n" + r.owner + "\n" + r.meta
}

func decode(value []byte) (r record, ours bool) {
	rest, ok := strings.CutPrefix(string(value), version)
	if !ok {
		return r, false
	}
	f := strings.SplitN(rest, "\n", 4)
	if len(f) != 4 {
		return r, false
	}
	ms, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil || ms <= 0 {
		return r, false
	}
	return record{id: f[0], ttl: time.Duration(ms) * time.Millisecond, owner: f[2], meta: f[3]}, true
}

// entry is one place of a queue, as the store has it.
type entry struct {
	record
	key   string
	rev   int64 // create revision
	lease int64
	units int64
	limit int64
	ours  bool // has a record, which shows only if the values were read
}

// parse reads a key of a queue. An error means that the key belongs to neither
// Holdfast nor etcd's own recipe. Newer servers omit the lease of a key that is
// read without its value; parse then takes the key for the place that it looks
// like.
func parse(queue string, kv *mvccpb.KeyValue, keysOnly bool) (entry, error) {
	e := entry{key: string(kv.Key), rev: kv.CreateRevision, units: 1, limit: 1}
	rest, ok := strings.CutPrefix(e.key, queue)
	if !ok {
		return e, fmt.Errorf("key %q is not in the line", e.key)
	}
	var err error
	if s, ok := strings.CutPrefix(rest, "rw-"); ok {
		e.limit, rest = driver.RWLimit, s
	} else if s, ok := strings.CutPrefix(rest, "s"); ok {
		size, s, _ := strings.Cut(s, "-")
		if e.limit, err = strconv.ParseInt(size, 16, 64); err != nil || e.limit < 2 {
			return e, fmt.Errorf("key %q is no lock's", e.key)
		}
		rest = s
	}
	if e.limit > 1 {
		units, s, _ := strings.Cut(rest, "-")
		if e.units, err = strconv.ParseInt(units, 16, 64); err != nil || e.units < 1 || e.units > e.limit {
			return e, fmt.Errorf("key %q is no lock's", e.key)
		}
		rest = s
	}
	lease, _, _ := strings.Cut(rest, "-")
	if e.lease, err = strconv.ParseInt(lease, 16, 64); err != nil || e.lease <= 0 || hex(e.lease) != lease ||
		kv.Lease != e.lease && (kv.Lease != 0 || len(kv.Value) > 0 || !keysOnly) {
		return e, fmt.Errorf("key %q is no lock's: it does not end with its lease", e.key)
	}
	e.record, e.ours = decode(kv.Value)
	return e, nil
}

// parseAll reads the keys of a queue, in the order given.
func parseAll(queue string, kvs []*mvccpb.KeyValue, keysOnly bool) ([]entry, error) {
	es := make([]entry, 0, len(kvs))
	for _, kv := range kvs {
		e, err := parse(queue, kv, keysOnly)
		if err != nil {
			return nil, driver.Wrap(driver.Refused, err)
		}
		es = append(es, e)
	}
	return es, nil
}

// holding returns how many of the places, which are in order, hold. The oldest
// place decides the limit. A place with another limit (a foreign mutex behind
// readers) shares with no other.
func holding(es []entry) int {
	if len(es) == 0 {
		return 0
	}
	limit, used := es[0].limit, int64(0)
	for i, e := range es {
		units := e.units
		if e.limit != limit {
			units = limit
		}
		if units > limit-used {
			return i
		}
		used += units
	}
	return len(es)
}

// successor is the next place in a mutex's queue, as a place before it knows it: no
// other place is, or ever will be, between the two.
type successor struct {
	suffix  string // of its key, after the queue's prefix
	rev     int64
	foreign bool // not ours: it needs no wake-up, and passes nothing on
}

// message is the text in a wake key: one event about one place.
type message struct {
	gone bool
	key  string
	rev  int64 // 0 means any place that has the key at that time
	at   int64 // revision at which it was written; not part of the text
	next []successor
}

// about reports whether the message is about the place made at revision rev.
func (m *message) about(rev int64) bool {
	return m.rev == rev || m.rev == 0 && rev < m.at
}

// encode returns "+rev next,next key" or "-rev . key". A next is "suffix:rev",
// with a '!' if it is foreign. A suffix may contain an id, so its bytes are
// quoted where they would be misread.
func (m message) encode() string {
	var b strings.Builder
	sign := '+'
	if m.gone {
		sign = '-'
	}
	fmt.Fprintf(&b, "%c%d ", sign, m.rev)
	for i, s := range m.next {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%d", word.Encode(s.suffix), s.rev)
		if s.foreign {
			b.WriteByte('!')
		}
	}
	b.WriteByte(' ')
	b.WriteString(word.Encode(m.key))
	return b.String()
}

var word = driver.Charset{
	Plain: func(b byte) bool { return b > ' ' && b != 0x7f && b != ',' && b != ':' },
	Max:   1 << 20,
}

var errMessage = errors.New("not a wake-up")

func decodeMessage(s string) (m message, err error) {
	f := strings.Split(s, " ")
	if len(f) != 3 || f[0] == "" || f[0][0] != '+' && f[0][0] != '-' {
		return m, errMessage
	}
	m.gone = f[0][0] == '-'
	if m.rev, err = strconv.ParseInt(f[0][1:], 10, 64); err != nil {
		return m, errMessage
	}
	if m.key, err = word.Decode(f[2]); err != nil {
		return m, errMessage
	}
	if f[1] == "" {
		return m, nil
	}
	for n := range strings.SplitSeq(f[1], ",") {
		suffix, rev, _ := strings.Cut(n, ":")
		var s successor
		rev, s.foreign = strings.CutSuffix(rev, "!")
		if s.suffix, err = word.Decode(suffix); err != nil {
			return m, errMessage
		}
		if s.rev, err = strconv.ParseInt(rev, 10, 64); err != nil {
			return m, errMessage
		}
		m.next = append(m.next, s)
	}
	return m, nil
}

// leaseOf returns the lease in the suffix of a key that parse has accepted.
func leaseOf(suffix string) (lease string, id int64) {
	fields := strings.SplitN(suffix, "-", 4)
	if lease = fields[0]; len(fields) > 2 && (suffix[0] == 'r' || suffix[0] == 's') { // limit, units, lease
		lease = fields[2]
	}
	id, _ = strconv.ParseInt(lease, 16, 64)
	return lease, id
}
