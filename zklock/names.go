package zklock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// charset is how a lock's name is written as one element of a path.
var charset = driver.Charset{
	Plain: func(b byte) bool { return b > ' ' && b < 0x7f && b != '/' },
	Max:   512,
}

// reserved are elements that the server does not take, or keeps for itself.
// Their written form is none that charset makes of another name.
var reserved = map[string]string{".": "%2E", "..": "%2E%2E", "zookeeper": "%7Aookeeper"}

func encodeName(name string) string {
	s := charset.Encode(name)
	if r, ok := reserved[s]; ok {
		return r
	}
	return s
}

// hashed says whether a written name has no way back.
func hashed(enc string) bool { return strings.HasPrefix(enc, "~") }

func decodeName(enc string) (string, error) {
	for name, r := range reserved {
		if enc == r {
			return name, nil
		}
	}
	return charset.Decode(enc)
}

// nodeUUID is the UUID in the name of a ticket's node. It follows from the
// ticket's id, so that a node can be found and judged by the id alone: ids
// "<uuid>:<number>" keep the first ten bytes of the client's UUID, and the
// number goes into the other six.
func nodeUUID(id string) string {
	if at := strings.LastIndexByte(id, ':'); at == uuidLen {
		b, err := parseUUID(id[:at])
		n, err2 := strconv.ParseUint(id[at+1:], 10, 48)
		if err == nil && err2 == nil && strconv.FormatUint(n, 10) == id[at+1:] {
			for i := range 6 {
				b[15-i] ^= byte(n >> (8 * i))
			}
			return formatUUID(b)
		}
	}
	sum := sha256.Sum256([]byte(id))
	return formatUUID([16]byte(sum[:16]))
}

const uuidLen = 36

// clientLen is how much of a node's UUID tells the client: 20 digits and two
// dashes.
const clientLen = 22

// parseUUID makes no garbage, because each listing of a line has one for every
// ticket.
func parseUUID(s string) (b [16]byte, err error) {
	if len(s) != uuidLen {
		return b, fmt.Errorf("a UUID has %d characters", uuidLen)
	}
	var text [uuidLen]byte
	copy(text[:], s)
	for _, p := range uuidParts {
		if _, err := hex.Decode(b[p.at:p.end], text[p.text:][:2*(p.end-p.at)]); err != nil {
			return b, err
		}
	}
	if writeUUID(b) != text {
		return b, fmt.Errorf("%q is no UUID with four dashes, in lower case", s)
	}
	return b, nil
}

func formatUUID(b [16]byte) string {
	text := writeUUID(b)
	return string(text[:])
}

// uuidParts are the groups of bytes of a UUID, and where their digits begin.
var uuidParts = [...]struct{ at, end, text int }{{0, 4, 0}, {4, 6, 9}, {6, 8, 14}, {8, 10, 19}, {10, 16, 24}}

func writeUUID(b [16]byte) (text [uuidLen]byte) {
	for i, p := range uuidParts {
		if i > 0 {
			text[p.text-1] = '-'
		}
		hex.Encode(text[p.text:], b[p.at:p.end])
	}
	return text
}

// ownerTag marks the nodes of a named owner, so that a listing shows them.
func ownerTag(owner string) string {
	if owner == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(owner))
	return "o" + hex.EncodeToString(sum[:8])
}

// A node is a ticket as its node's name tells it.
type node struct {
	name  string
	uuid  string // empty for clients that have none, or another form of it
	owner string // the owner's tag
	seq   int32
	limit int64
	units int64
}

const (
	protected = "_c_"
	lockMark  = "lock-"
	readMark  = "__READ__"
	writeMark = "__WRIT__"
	permMark  = "-sem-"
	baseMark  = "base-"
)

// nodeName is the name of a ticket's node without its number.
func nodeName(uuid, tag string, units, limit int64) string {
	s := protected + uuid + "-"
	if tag != "" {
		s += tag + "-"
	}
	switch {
	case limit == 1:
		return s + lockMark
	case limit == driver.RWLimit && units == limit:
		return s + writeMark
	case limit == driver.RWLimit && units == 1:
		return s + readMark
	}
	return s[:len(s)-1] + permMark + fmt.Sprintf("%d-%d-", limit, units)
}

// parseNode reads a node's name. Whatever is not a ticket's is passed over:
// several programs may keep things below one path.
func parseNode(name string) (n node, ok bool) {
	n.name = name
	mark := -1
	for _, m := range []struct {
		mark         string
		units, limit int64
	}{{lockMark, 1, 1}, {readMark, 1, driver.RWLimit}, {writeMark, driver.RWLimit, driver.RWLimit}} {
		if i := strings.LastIndex(name, m.mark); i >= 0 {
			if n.seq, ok = parseSeq(name[i+len(m.mark):]); ok {
				mark, n.units, n.limit = i, m.units, m.limit
				break
			}
		}
	}
	if !ok {
		i := strings.LastIndex(name, permMark)
		if i < 0 {
			return n, false
		}
		parts := strings.SplitN(name[i+len(permMark):], "-", 3)
		if len(parts) != 3 {
			return n, false
		}
		limit, err1 := strconv.ParseInt(parts[0], 10, 64)
		units, err2 := strconv.ParseInt(parts[1], 10, 64)
		n.seq, ok = parseSeq(parts[2])
		if !ok || err1 != nil || err2 != nil || units < 1 || units > limit {
			return n, false
		}
		mark, n.limit, n.units = i+1, limit, units
	}
	head := name[:mark]
	if strings.HasPrefix(head, protected) && len(head) > len(protected)+uuidLen {
		uuid := head[len(protected):][:uuidLen]
		if _, err := parseUUID(uuid); err == nil && head[len(protected)+uuidLen] == '-' {
			n.uuid = uuid
			if rest := head[len(protected)+uuidLen+1:]; len(rest) == 18 && rest[0] == 'o' && rest[17] == '-' {
				n.owner = rest[:17]
			}
		}
	}
	return n, true
}

// parseSeq reads the number that the server put at the end of a name: ten
// digits, with a sign once the counter has passed 2^31.
func parseSeq(s string) (int32, bool) {
	if len(s) < 10 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil
}

// spent says whether a number comes from a counter at its end. It stops at
// 2^31 - 1, which the server gives again and again from then on, and for what it
// has not written yet it counts on from there, into the negative, and back again:
// these numbers tell no order, and several nodes may have one.
func spent(seq int32) bool { return seq < 0 || seq == math.MaxInt32 }

func formatSeq(seq int32) string { return fmt.Sprintf("%010d", seq) }

// before says whether number a was given before b. The counter of a path goes
// round after 2^32 nodes; differences do not.
func before(a, b int32) bool { return a-b < 0 }

// A view is what one listing of a line says.
type view struct {
	nodes []node // in order of their places
	bases []base // floors of tokens, see token.go
}

// look reads a listing.
func look(children []string) view {
	v := view{nodes: make([]node, 0, len(children))}
	for _, c := range children {
		if b, ok := parseBase(c); ok {
			v.bases = append(v.bases, b)
		} else if n, ok := parseNode(c); ok {
			v.nodes = append(v.nodes, n)
		}
	}
	slices.SortFunc(v.nodes, func(a, b node) int {
		switch {
		case before(a.seq, b.seq):
			return -1
		case before(b.seq, a.seq):
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return v
}

// A place is one or more nodes of one number: those of one owner.
type place struct {
	nodes []node
	units int64
}

func (v *view) places() []place {
	ps := make([]place, 0, len(v.nodes))
	for i, n := range v.nodes { // those of one place are side by side
		if k := len(ps) - 1; k >= 0 && ps[k].nodes[0].seq == n.seq && !spent(n.seq) {
			first := i - len(ps[k].nodes)
			ps[k].nodes = v.nodes[first : i+1 : i+1]
			ps[k].units = max(ps[k].units, n.units)
		} else {
			ps = append(ps, place{v.nodes[i : i+1 : i+1], n.units})
		}
	}
	return ps
}

// limit is the line's: that of whoever is first. 0 for an empty line.
func (v *view) limit() int64 {
	if len(v.nodes) == 0 {
		return 0
	}
	return v.nodes[0].limit
}

// add adds units without overflow.
func add(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return 1<<63 - 1
}

// fits says whether a new ticket would hold at once.
func (v *view) fits(units, limit int64) bool {
	sum := units
	for _, p := range v.places() {
		if p.nodes[0].limit != limit {
			return false
		}
		sum = add(sum, p.units)
	}
	return sum <= limit
}

// A standing is where one node stands.
type standing struct {
	found bool
	held  bool
	ahead int // places
	// target is the node to wait for; alone says that its end makes the
	// waiter a holder, so that there is no need to look again.
	target string
	alone  bool
	// crowd: no single node is in the way, because several hold and any of
	// them may leave first. The first that waits (head) watches the line.
	crowd, head bool
	last        bool // nobody is behind
}

// standing finds the node of that name and works out whom it waits for. The
// node to watch is the last one ahead that alone excludes it: as long as that
// one is there, nothing else can make a difference. A node of another limit
// than the waiter's is in everybody's way: it will soon be gone, or else holds.
func (v *view) standing(name string) (s standing) {
	ps := v.places()
	at := slices.IndexFunc(ps, func(p place) bool {
		return slices.ContainsFunc(p.nodes, func(n node) bool { return n.name == name })
	})
	if at < 0 {
		return s
	}
	s.found, s.ahead, s.last = true, at, at == len(ps)-1
	mine := ps[at]
	limit := mine.nodes[0].limit
	units := func(p place) int64 {
		if p.nodes[0].limit != limit {
			return limit
		}
		return p.units
	}
	sum, single := int64(0), -1
	for i, p := range ps[:at] {
		sum = add(sum, units(p))
		if units(p) > limit-mine.units {
			single = i
		}
	}
	if add(sum, mine.units) <= limit {
		s.held = true
		return s
	}
	if single >= 0 {
		t := ps[single]
		s.target = t.nodes[len(t.nodes)-1].name
		// The places of owners, and of writers who go on as readers, may have
		// got another node since this listing.
		grows := t.nodes[0].owner != "" || limit == driver.RWLimit && t.units > 1 && mine.units > 1
		s.alone = len(t.nodes) == 1 && !grows && add(sum-units(t), mine.units) <= limit
		return s
	}
	s.crowd = true
	pred := ps[at-1]
	s.head = sum <= limit
	s.target = pred.nodes[len(pred.nodes)-1].name
	return s
}

// ofOwner returns the first node of an owner, other than the one of that UUID.
func (v *view) ofOwner(tag, except string) (node, bool) {
	for _, n := range v.nodes {
		if n.owner == tag && n.uuid != except {
			return n, true
		}
	}
	return node{}, false
}

// ofUUID returns the nodes of a ticket; there may be several after failures.
func (v *view) ofUUID(uuid string) []node {
	var ns []node
	for _, n := range v.nodes {
		if n.uuid == uuid {
			ns = append(ns, n)
		}
	}
	return ns
}
