package wire

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"
)

// Reserved begins the channels, and the keys that are not named by users.
const Reserved = "holdfast_"

// The keys of a queue, by their index in KEYS of the scripts.
const (
	KeyHolders = iota
	KeyWaiters
	KeyDue
	KeyTickets
	KeyMark // shared by all queues of the server, or slot; so is the next one
	keyAhead
	// KeyNone is one more key in a cluster, which never exists. Redis puts requests
	// off, or redirects them, while a slot is moved and one of the request's keys is
	// missing. A script that ran then could fail halfway, at a key that the script
	// itself deleted; with this key, none runs.
	KeyNone
	NumKeys
)

// OwnKeys is the number of keys that are the queue's own.
const OwnKeys = KeyMark

// HelperNames begin the keys beside the first. The first of them begins the
// first key, too, if it would look like another.
var HelperNames = [OwnKeys]string{"holdfast_line:", "holdfast_queue:", "holdfast_due:", "holdfast_tickets:"}

// MarkName is the key of the high-water mark of tokens. In a cluster it begins
// the keys of the slots.
const MarkName = "holdfast_mark"

// AheadName is the key of the tokens that are ahead of the mark. In a cluster
// it begins the keys of the slots.
const AheadName = "holdfast_ahead"

// QueueKeys is the name of a queue, and its keys.
type QueueKeys struct {
	name    string
	Keys    [NumKeys]string
	Channel string // of the pushes to its tickets
	Slot    int    // in a cluster
}

// All returns the keys of a queue in the order of KEYS.
func (l *QueueKeys) All() []string {
	if l.Keys[KeyNone] == "" {
		return l.Keys[:KeyNone]
	}
	return l.Keys[:]
}

// MarkKey returns the key of the mark that SetMark keeps. The key MarkName is
// the mark of tokens.
func (l *QueueKeys) MarkKey() string { return doneName + InSlot(l.Keys[KeyHolders]) }

// num returns the number of keys of a request on the queue.
func (l *QueueKeys) num() int {
	if l.Keys[KeyNone] == "" {
		return KeyNone
	}
	return NumKeys
}

// HoldersKey returns the first key of a queue.
func HoldersKey(prefix, name string) string {
	var b keyBuilder
	b.Grow(b.holdersSize(prefix, name))
	return b.holdersKey(prefix, name)
}

// NewQueueKeys returns the keys of a queue of a single server.
func NewQueueKeys(prefix, name string) *QueueKeys {
	c := KeyCache{Prefix: prefix}
	return c.Make(name)
}

// keyBuilder writes the keys of a queue one after the other into one text, of
// which each key is a part: they take one allocation.
type keyBuilder struct{ strings.Builder }

// keyOverhead is the most bytes that a helper key has beyond the first key and
// the helper's name.
const keyOverhead = len("#{00000}")

func (*keyBuilder) holdersSize(prefix, name string) int {
	return len(HelperNames[KeyHolders]) + len(prefix) + len(name)
}

// since returns what was written since the text had the length from.
func (b *keyBuilder) since(from int) string { return b.String()[from:] }

func (b *keyBuilder) holdersKey(prefix, name string) string {
	from := b.Len()
	b.WriteString(prefix)
	b.WriteString(name)
	k := b.since(from)
	if !strings.HasPrefix(k, Reserved) {
		return k
	}
	from = b.Len()
	b.WriteString(HelperNames[KeyHolders])
	b.WriteString(prefix)
	b.WriteString(name)
	return b.since(from)
}

func (b *keyBuilder) number(n int) {
	var digits [20]byte
	b.Write(strconv.AppendInt(digits[:0], int64(n), 10))
}

// helper writes the helper key of a name for the key k.
func (b *keyBuilder) helper(name, k string) string {
	from := b.Len()
	b.WriteString(name)
	b.inSlot(k)
	return b.since(from)
}

// inSlot writes what InSlot returns.
func (b *keyBuilder) inSlot(k string) {
	switch {
	case !strings.ContainsAny(k, "{}"):
		b.WriteByte('{')
		b.WriteString(k)
		b.WriteByte('}')
	case hashTag(k) != k:
		b.WriteByte(':')
		b.WriteString(k)
	default:
		b.WriteString("#{")
		b.number(TagOf(Slot(k)))
		b.WriteByte('}')
		b.WriteString(k)
	}
}

// inSlotOf writes what ChannelOf returns.
func (b *keyBuilder) inSlotOf(base string, slot int) string {
	from := b.Len()
	b.WriteString(base)
	b.WriteByte('{')
	b.number(TagOf(slot))
	b.WriteByte('}')
	return b.since(from)
}

// InSlot returns the part of a helper key's name that stands for the key k.
func InSlot(k string) string {
	var b keyBuilder
	b.Grow(len(k) + keyOverhead)
	b.inSlot(k)
	return b.String()
}

// OutOfSlot is the inverse of inSlot.
func OutOfSlot(in string) (k string, ok bool) {
	switch {
	case strings.HasPrefix(in, "{") && strings.HasSuffix(in, "}"):
		k = in[1 : len(in)-1]
	case strings.HasPrefix(in, ":"):
		k = in[1:]
	case strings.HasPrefix(in, "#{"):
		_, k, _ = strings.Cut(in, "}")
	}
	return k, k != "" && InSlot(k) == in
}

// NameOf returns the name of the queue that is kept at the key k.
func NameOf(prefix, k string) (name string, ok bool) {
	if strings.HasPrefix(k, Reserved) {
		if k, ok = strings.CutPrefix(k, HelperNames[KeyHolders]); !ok || !strings.HasPrefix(k, Reserved) {
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

// Slots is the number of slots of a cluster.
const Slots = 16384

// Slot returns the cluster's slot of a key: CRC16/XMODEM of its tag.
func Slot(k string) int {
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
	return int(crc % Slots)
}

// tags is, for each slot, the least number whose decimal text falls in the
// slot, plus one. The first call of TagOf computes it; calls at the same time
// compute the same.
var tags atomic.Pointer[[Slots]int]

// TagOf returns the least number whose decimal text falls in a slot.
func TagOf(at int) int {
	t := tags.Load()
	if t == nil {
		t = new([Slots]int)
		for n, found := 0, 0; found < Slots; n++ {
			if s := Slot(strconv.Itoa(n)); t[s] == 0 {
				t[s] = n + 1
				found++
			}
		}
		tags.Store(t)
	}
	return t[at] - 1
}

// KeyCache keeps the keys of the names last used, so that a lock that is
// taken again and again does not build its keys each time, and one that is
// released finds those that it was taken with.
type KeyCache struct {
	Prefix  string
	channel string // of the pushes to the driver
	Sharded bool   // the server is a node of a cluster
	seed    maphash.Seed
	sets    [64]keySet
}

// keySet has the keys of a few names that fall together: with many names, those of a
// held lock must not give way to the first that come. A caller that meets another one
// here does not wait, but builds the keys anew.
type keySet struct {
	busy atomic.Bool // guards the rest
	kept []QueueKeys // at most keySetSize
	next int         // the one to give way next
}

const keySetSize = 4

// Init makes the cache of the queues that have a prefix.
func (c *KeyCache) Init(prefix, channel string, sharded bool) {
	c.Prefix, c.channel, c.Sharded, c.seed = prefix, channel, sharded, maphash.MakeSeed()
}

// Make returns keys that are not kept in the cache.
func (c *KeyCache) Make(name string) *QueueKeys {
	l := c.make(name)
	return &l
}

func (c *KeyCache) make(name string) QueueKeys {
	l := QueueKeys{name: name, Channel: c.channel}
	var b keyBuilder
	first := b.holdersSize(c.Prefix, name)
	size := 2 * first
	for _, helper := range HelperNames[KeyWaiters:] {
		size += len(helper) + first + keyOverhead
	}
	if c.Sharded {
		size += len(NoneName) + first + len(MarkName) + len(AheadName) + len(c.channel) + 4*keyOverhead
	}
	b.Grow(size)
	k := b.holdersKey(c.Prefix, name)
	l.Keys[KeyHolders] = k
	for i := KeyWaiters; i < OwnKeys; i++ {
		l.Keys[i] = b.helper(HelperNames[i], k)
	}
	l.Keys[KeyMark], l.Keys[keyAhead] = MarkName, AheadName
	if c.Sharded {
		l.Slot = Slot(k)
		l.Keys[KeyNone] = b.helper(NoneName, k)
		l.Keys[KeyMark], l.Keys[keyAhead] = b.inSlotOf(MarkName+":", l.Slot), b.inSlotOf(AheadName+":", l.Slot)
		l.Channel = b.inSlotOf(c.channel, l.Slot)
	}
	return l
}

// NoneName begins the key that never exists.
const NoneName = "holdfast_none:"

// ChannelOf returns the channel of a driver in a slot. With another base it
// returns another name in the slot.
func ChannelOf(base string, slot int) string {
	var b keyBuilder
	b.Grow(len(base) + keyOverhead)
	return b.inSlotOf(base, slot)
}

// Get returns the keys of a queue.
func (c *KeyCache) Get(name string) QueueKeys {
	set := &c.sets[maphash.String(c.seed, name)%uint64(len(c.sets))]
	if !set.busy.CompareAndSwap(false, true) {
		return c.make(name)
	}
	defer set.busy.Store(false)
	for i := range set.kept {
		if l := &set.kept[i]; l.name == name {
			return *l
		}
	}
	l := c.make(name)
	if len(set.kept) < keySetSize {
		set.kept = append(set.kept, l)
	} else {
		set.kept[set.next] = l
		set.next = (set.next + 1) % keySetSize
	}
	return l
}

// GlobEscape writes s so that a pattern of Redis matches it literally.
func GlobEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`*?[]\^`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// LayoutKey has the version of the layout of the whole server, a decimal number. A later
// version writes it that cannot share a server with this one, which only reads it.
const LayoutKey = "holdfast_layout"

// GuardKey is the key that shows whether a server kept its data or lost them,
// see guard.lua. The key never expires.
const GuardKey = "holdfast_guard"
