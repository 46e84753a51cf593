package redislock

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// reserved begins the keys that are not named by users, and the channels.
const reserved = "holdfast_"

// The keys of a line, by their place in KEYS of the scripts.
const (
	keyLine = iota
	keyQueue
	keyDue
	keyTickets
	keyToken
	numKeys
)

var helperNames = [numKeys]string{"holdfast_line:", "holdfast_queue:", "holdfast_due:", "holdfast_tickets:", "holdfast_token:"}

// How many keys a script about one line has, and how many in a cluster.
const (
	numKeysText = "5"
	numKeysMore = "6"
)

// line is a name and its keys.
type line struct {
	name    string
	keys    [numKeys]string
	channel string // of the pushes about it

	// In a cluster: the slot, and one more key, which never exists. Redis puts
	// requests off, or redirects them, while a slot is moved and one of the
	// request's keys is not there. A script that ran then could fail halfway,
	// at a key that it made vanish itself; with this key, none runs.
	slot int
	none string
}

// lineKey returns the first key of a line.
func lineKey(prefix, name string) string {
	k := prefix + name
	if strings.HasPrefix(k, reserved) {
		k = helperNames[keyLine] + k
	}
	return k
}

func newLine(prefix, name string) *line {
	k := lineKey(prefix, name)
	l := &line{name: name}
	l.keys[keyLine] = k
	in := inSlot(k)
	for i := keyQueue; i < numKeys; i++ {
		l.keys[i] = helperNames[i] + in
	}
	return l
}

// inSlot returns how the key k is named within a helper's name.
func inSlot(k string) string {
	switch {
	case !strings.ContainsAny(k, "{}"):
		return "{" + k + "}"
	case hashTag(k) != k:
		return ":" + k
	}
	return "#{" + strconv.Itoa(tagOf(slot(k))) + "}" + k
}

// outOfSlot is the inverse of inSlot.
func outOfSlot(in string) (k string, ok bool) {
	switch {
	case strings.HasPrefix(in, "{") && strings.HasSuffix(in, "}"):
		k = in[1 : len(in)-1]
	case strings.HasPrefix(in, ":"):
		k = in[1:]
	case strings.HasPrefix(in, "#{"):
		_, k, _ = strings.Cut(in, "}")
	}
	return k, k != "" && inSlot(k) == in
}

// nameOf returns the name of the line that is kept at the key k.
func nameOf(prefix, k string) (name string, ok bool) {
	if strings.HasPrefix(k, reserved) {
		if k, ok = strings.CutPrefix(k, helperNames[keyLine]); !ok || !strings.HasPrefix(k, reserved) {
			return "", false
		}
	}
	name, ok = strings.CutPrefix(k, prefix)
	return name, ok && name != ""
}

// hashTag returns the part of a key from which Redis Cluster computes its slot.
func hashTag(k string) string {
	if _, rest, ok := strings.Cut(k, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return k
}

const slots = 16384

// slot returns the cluster's slot of a key: CRC16/XMODEM of its tag.
func slot(k string) int {
	var crc uint16
	for _, b := range []byte(hashTag(k)) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % slots)
}

// tags has for each slot the least number whose decimal text falls in it, plus
// one.
var tags = sync.OnceValue(func() *[slots]int {
	var t [slots]int
	for n, found := 0, 0; found < slots; n++ {
		if s := slot(strconv.Itoa(n)); t[s] == 0 {
			t[s] = n + 1
			found++
		}
	}
	return &t
})

func tagOf(slot int) int { return tags()[slot] - 1 }

// lineCache keeps the keys of the names last used, so that taking one lock
// again and again does not build them again and again.
type lineCache struct {
	prefix  string
	channel string // of the pushes to the driver
	sharded bool   // the server is a node of a cluster
	seed    maphash.Seed
	slots   [256]atomic.Pointer[line]
}

func (c *lineCache) init(prefix, channel string, sharded bool) {
	c.prefix, c.channel, c.sharded, c.seed = prefix, channel, sharded, maphash.MakeSeed()
}

// make returns a line that is not kept.
func (c *lineCache) make(name string) *line {
	l := newLine(c.prefix, name)
	l.channel = c.channel
	if c.sharded {
		l.slot = slot(l.keys[keyLine])
		l.none = noneName + inSlot(l.keys[keyLine])
		l.channel = channelOf(c.channel, l.slot)
	}
	return l
}

// noneName begins the key that never exists.
const noneName = "holdfast_none:"

// channelOf returns the channel of a driver that is in a slot.
func channelOf(base string, slot int) string {
	return base + "{" + strconv.Itoa(tagOf(slot)) + "}"
}

func (c *lineCache) get(name string) *line {
	at := &c.slots[maphash.String(c.seed, name)%uint64(len(c.slots))]
	if l := at.Load(); l != nil && l.name == name {
		return l
	}
	l := c.make(name)
	at.Store(l)
	return l
}

// globEscape writes s so that a pattern of Redis matches it literally.
func globEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`*?[]\^`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
