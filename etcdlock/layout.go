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

// layout makes keys. Everything is below one prefix. The keys that are not
// lines begin with '%' and a small letter, which no encoded name does.
type layout struct{ prefix string }

// plain are the names' bytes that stand for themselves in a key: all but the
// slash, which would put one line inside another (F62), and what a terminal
// does not show.
var plain = driver.Charset{
	Plain: func(b byte) bool { return b >= ' ' && b != 0x7f && b != '/' },
	Max:   3 * driver.MaxName,
}

// line is what the keys of a line begin with.
func (l layout) line(name string) string { return l.prefix + plain.Encode(name) + "/" }

// wake is the key by which the clients of a lease are told of grants.
func (l layout) wake(lease string) string { return l.prefix + "%w/" + lease }

// tomb keeps a ticket from ever joining (again).
func (l layout) tomb(id string) string { return l.prefix + "%t/" + id }

// index says under which key a named owner has its place in a line.
func (l layout) index(name, owner string) string {
	return l.prefix + "%o/" + plain.Encode(name) + "/" + plain.Encode(owner)
}

// members is what the keys of an owner's tickets begin with; of all owners of
// the line, when owner is empty.
func (l layout) members(name, owner string) string {
	p := l.prefix + "%m/" + plain.Encode(name) + "/"
	if owner != "" {
		p += plain.Encode(owner) + "/"
	}
	return p
}

// after is the end of the range of all keys that begin with p.
func after(p string) string { return p[:len(p)-1] + string(p[len(p)-1]+1) }

func hex(lease int64) string { return strconv.FormatInt(lease, 16) }

// kind is what the keys of places of a limit begin with, after the line. Those
// of mutexes begin with the lease, as in etcd's own recipe; the other kinds
// sort behind every lease.
func kind(limit int64) string {
	switch limit {
	case 1:
		return ""
	case driver.RWLimit:
		return "rw-"
	}
	return "s" + strconv.FormatInt(limit, 16) + "-"
}

// others returns the ranges of a line in which a place of another limit would
// be.
func others(line string, limit int64) [][2]string {
	if limit == 1 {
		return [][2]string{{line + "g", after(line)}}
	}
	k := line + kind(limit)
	return [][2]string{{line, k}, {after(k), after(line)}}
}

// recipe is the key that etcd's own recipe would use.
func recipe(line string, lease string) string { return line + lease }

// place is the key of any other place. The id tells the places of one lease
// apart; an owner's is "=".
func placeKey(line string, limit, units int64, lease, id string) string {
	if limit == 1 {
		return line + lease + "-" + id
	}
	return line + kind(limit) + strconv.FormatInt(units, 16) + "-" + lease + "-" + id
}

// record is the value of our keys. Its first line is the version of the
// layout; a value without it is not ours.
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

// entry is one place of a line, as the store has it.
type entry struct {
	record
	key   string
	rev   int64 // create revision
	lease int64
	units int64
	limit int64
	ours  bool // has a record; if the values were read
}

// parse reads a key of a line. An error means that it belongs to nobody who
// speaks of locks: not to us, and not to etcd's own recipe. Of keys that were
// read without their values, newer servers do not say the lease; those are
// taken for what they look like.
func parse(line string, kv *mvccpb.KeyValue, keysOnly bool) (entry, error) {
	e := entry{key: string(kv.Key), rev: kv.CreateRevision, units: 1, limit: 1}
	rest, ok := strings.CutPrefix(e.key, line)
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

// parseAll reads the keys of a line, in the order given.
func parseAll(line string, kvs []*mvccpb.KeyValue, keysOnly bool) ([]entry, error) {
	es := make([]entry, 0, len(kvs))
	for _, kv := range kvs {
		e, err := parse(line, kv, keysOnly)
		if err != nil {
			return nil, driver.Wrap(driver.Refused, err)
		}
		es = append(es, e)
	}
	return es, nil
}

// holding says how many of the places, which are in order, hold. The oldest
// one decides what the limit is; one of another limit (a foreign mutex behind
// readers) shares with nobody.
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

// A succ is a place that is known to be next in a mutex's line: nobody is, or
// ever will be, between it and the one who knows.
type succ struct {
	suffix  string // of its key, after the line
	rev     int64
	foreign bool // not ours: it needs no waking, and passes nothing on
}

// message is what is written to a wake key: one event about one place.
type message struct {
	gone bool
	key  string
	rev  int64 // 0 means whichever place has the key at that time
	at   int64 // when it was written; not part of the text
	next []succ
}

// about says whether the message is about the place made at that revision.
func (m *message) about(rev int64) bool {
	return m.rev == rev || m.rev == 0 && rev < m.at
}

// encode: "+rev next,next key" or "-rev . key"; a next is "suffix:rev", with a
// '!' when it is foreign. Ids may be in suffixes, so a suffix has its bytes
// quoted where they would be misread.
func (m message) encode() string {
	var b strings.Builder
	b.WriteByte("+-"[btoi(m.gone)])
	fmt.Fprintf(&b, "%d ", m.rev)
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
		var s succ
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

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// leaseOf reads the lease out of a key's end, which parse has accepted.
func leaseOf(suffix string) (lease string, id int64) {
	rest := suffix
	if s, ok := strings.CutPrefix(rest, "rw-"); ok {
		rest = s
	} else if s, ok := strings.CutPrefix(rest, "s"); ok {
		_, rest, _ = strings.Cut(s, "-")
	}
	if rest != suffix {
		_, rest, _ = strings.Cut(rest, "-") // units
	}
	lease, _, _ = strings.Cut(rest, "-")
	id, _ = strconv.ParseInt(lease, 16, 64)
	return lease, id
}
