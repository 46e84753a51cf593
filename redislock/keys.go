package redislock

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// reserved begins the channels, and the keys that are not named by users.
const reserved = "holdfast_"

// The keys of a queue, by their index in KEYS of the scripts.
const (
	keyHolders = iota
	keyWaiters
	keyDue
	keyTickets
	keyMark // shared by all queues of the server, or slot; so is the next one
	keyAhead
	// keyNone is one more key in a cluster, which never exists. Redis puts requests
	// off, or redirects them, while a slot is moved and one of the request's keys is
	// missing. A script that ran then could fail halfway, at a key that the script
	// itself deleted; with this key, none runs.
	keyNone
	numKeys
)

// ownKeys is the number of keys that are the queue's own.
const ownKeys = keyMark

var helperNames = [ownKeys]string{"holdfast_line:", "holdfast_queue:", "holdfast_due:", "holdfast_tickets:"}

// markName is the key of the high-water mark of tokens. In a cluster it begins
// the keys of the slots.
const markName = "holdfast_mark"

// aheadName is the key of the tokens that are ahead of the mark. In a cluster
// it begins the keys of the slots.
const aheadName = "holdfast_ahead"

// queueKeys is the name of a queue, and its keys.
type queueKeys struct {
	name    string
	keys    [numKeys]string
	channel string // of the pushes to its tickets
	slot    int    // in a cluster
}

// all returns the keys of a queue in the order of KEYS.
func (l *queueKeys) all() []string {
	if l.keys[keyNone] == "" {
		return l.keys[:keyNone]
	}
	return l.keys[:]
}

// holdersKey returns the first key of a queue.
func holdersKey(prefix, name string) string {
	k := prefix + name
	if strings.HasPrefix(k, reserved) {
		k = helperNames[keyHolders] + k
	}
	return k
}

func newQueueKeys(prefix, name string) *queueKeys {
	k := holdersKey(prefix, name)
	l := &queueKeys{name: name}
	l.keys[keyHolders] = k
	in := inSlot(k)
	for i := keyWaiters; i < ownKeys; i++ {
		l.keys[i] = helperNames[i] + in
	}
	l.keys[keyMark], l.keys[keyAhead] = markName, aheadName
	return l
}

// inSlot returns the part of a helper key's name that stands for the key k.
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

// nameOf returns the name of the queue that is kept at the key k.
func nameOf(prefix, k string) (name string, ok bool) {
	if strings.HasPrefix(k, reserved) {
		if k, ok = strings.CutPrefix(k, helperNames[keyHolders]); !ok || !strings.HasPrefix(k, reserved) {
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

// tags is, for each slot, the least number whose decimal text falls in the
// slot, plus one.
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

// keyCache keeps the keys of the names last used, so that a lock that is
// taken again and again does not build its keys each time.
type keyCache struct {
	prefix  string
	channel string // of the pushes to the driver
	sharded bool   // the server is a node of a cluster
	seed    maphash.Seed
	slots   [256]atomic.Pointer[queueKeys]
}

func (c *keyCache) init(prefix, channel string, sharded bool) {
	c.prefix, c.channel, c.sharded, c.seed = prefix, channel, sharded, maphash.MakeSeed()
}

// make returns keys that are not kept in the cache.
func (c *keyCache) make(name string) *queueKeys {
	l := newQueueKeys(c.prefix, name)
	l.channel = c.channel
	if c.sharded {
		l.slot = slot(l.keys[keyHolders])
		l.keys[keyNone] = noneName + inSlot(l.keys[keyHolders])
		l.keys[keyMark], l.keys[keyAhead] = channelOf(markName+":", l.slot), channelOf(aheadName+":", l.slot)
		l.channel = channelOf(c.channel, l.slot)
	}
	return l
}

// noneName begins the key that never exists.
const noneName = "holdfast_none:"

// channelOf returns the channel of a driver in a slot. With another base it
// returns another name in the slot.
func channelOf(base string, slot int) string {
	return base + "{" + strconv.Itoa(tagOf(slot)) + "}"
}

func (c *keyCache) get(name string) *queueKeys {
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
