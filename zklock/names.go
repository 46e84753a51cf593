package zklock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// charset writes a lock's name as one element of a path.
var charset = driver.Charset{
	Plain: func(b byte) bool { return b > ' ' && b < 0x7f && b != '/' },
	Max:   512,
}

// reserved are the elements that the server refuses or keeps for itself, with
// their written forms. Charset gives no other name such a form.
var reserved = map[string]string{".": "%2E", "..": "%2E%2E", "zookeeper": "%7Aookeeper"}

func encodeName(name string) string {
	s := charset.Encode(name)
	if r, ok := reserved[s]; ok {
		return r
	}
	return s
}

func (d *Driver) queuePath(name string) string { return d.base + "/" + encodeName(name) }

// isHashed reports whether a written name is a hash, which cannot be decoded.
func isHashed(enc string) bool { return strings.HasPrefix(enc, "~") }

func decodeName(enc string) (string, error) {
	for name, r := range reserved {
		if enc == r {
			return name, nil
		}
	}
	return charset.Decode(enc)
}

// nodeUUID returns the UUID in the name of a ticket's node. The UUID follows
// from the ticket's id, so that the id alone is enough to find and judge a
// node: for an id "<uuid>:<number>" it keeps the first ten bytes of the
// client's UUID, and the number goes into the other six. The UUID of any other
// id is a hash of the id.
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

// clientLen is the length of the part of a node's UUID that identifies the
// client: 20 digits and two dashes.
const clientLen = 22

// parseUUID parses a UUID without allocating, because each listing of a queue
// has one for every ticket.
func parseUUID(s string) (b [16]byte, err error) {
	if len(s) != uuidLen {
		return b, fmt.Errorf("a UUID has %d characters", uuidLen)
	}
	var text [uuidLen]byte
	copy(text[:], s)
	for _, p := range uuidGroups {
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

// binaryUUID returns the bytes of a UUID of this package's own.
func binaryUUID(s string) [16]byte {
	b, _ := parseUUID(s)
	return b
}

// uuidGroups are the groups of bytes of a UUID, and the positions of their
// digits.
var uuidGroups = [...]struct{ at, end, text int }{{0, 4, 0}, {4, 6, 9}, {6, 8, 14}, {8, 10, 19}, {10, 16, 24}}

func writeUUID(b [16]byte) (text [uuidLen]byte) {
	for i, p := range uuidGroups {
		if i > 0 {
			text[p.text-1] = '-'
		}
		hex.Encode(text[p.text:], b[p.at:p.end])
	}
	return text
}

// ownerTag returns the mark in the names of a named owner's nodes, by which a
// listing shows them.
func ownerTag(owner string) string {
	if owner == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(owner))
	return "o" + hex.EncodeToString(sum[:8])
}

// A node is a ticket as its node's name describes it.
type node struct {
	name  string
	uuid  string // empty for clients that have none, or write it in another form
	owner string // the owner's tag
	seq   int32
	limit int64 // anyLimit for kazoo's exclusive locks
	units int64
}

// anyLimit is the limit of kazoo's exclusive locks. Kazoo gives the nodes of
// its mutex and of its writer the same name, so such a node fits a queue of any
// limit and takes all of the limit.
const anyLimit int64 = 0

const (
	protected = "_c_"
	lockMark  = "lock-"
	readMark  = "__READ__"
	writeMark = "__WRIT__"
	permMark  = "-sem-"
	baseMark  = "base-"

	// kazooMark and kazooReadMark are the marks of kazoo's locks, after 32 hex
	// digits.
	kazooMark     = "__lock__"
	kazooReadMark = "__rlock__"
)

// marks are the strings before the sequence number in the names of nodes that
// do not tell a limit and units.
var marks = [...]struct {
	mark         string
	units, limit int64
}{
	{lockMark, 1, 1}, {readMark, 1, driver.RWLimit}, {writeMark, driver.RWLimit, driver.RWLimit},
	{kazooMark, 1, anyLimit}, {kazooReadMark, 1, driver.RWLimit},
}

// nodeName returns the name of a ticket's node without its number.
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

// parseNode parses a node's name, and reports whether the node is a ticket's.
func parseNode(name string) (n node, ok bool) {
	n.name = name
	mark := -1
	for _, m := range marks {
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
		fields := strings.SplitN(name[i+len(permMark):], "-", 3)
		if len(fields) != 3 {
			return n, false
		}
		limit, err1 := strconv.ParseInt(fields[0], 10, 64)
		units, err2 := strconv.ParseInt(fields[1], 10, 64)
		n.seq, ok = parseSeq(fields[2])
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

// parseSeq parses the number that the server put at the end of a name: ten
// digits, with a sign once the counter has passed 2^31.
func parseSeq(s string) (int32, bool) {
	if len(s) < 10 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil
}

// spent reports whether a number comes from a counter that has reached its end.
// The counter stops at 2^31 - 1, and from then on the server gives that number
// again and again. For creates that it has not written yet, the server counts
// on from there, into the negative, and back again. Such numbers tell no order,
// and several nodes may have the same one.
func spent(seq int32) bool { return seq < 0 || seq == math.MaxInt32 }

func formatSeq(seq int32) string { return fmt.Sprintf("%010d", seq) }

// before reports whether number a was given before number b. The counter of a
// path wraps around after 2^32 nodes; the difference of two numbers still tells
// their order.
func before(a, b int32) bool { return a-b < 0 }
