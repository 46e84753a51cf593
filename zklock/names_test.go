package zklock

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func FuzzNames(f *testing.F) {
	for _, s := range []string{".", "..", "...", "zookeeper", "%7Aookeeper", "a/b", "a%2Fb", "~", "%", " ", "\x00", "世界", "%2E", strings.Repeat("x", 600)} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ea, eb := encodeName(a), encodeName(b)
		if (ea == eb) != (a == b) {
			t.Errorf("%q and %q are %q and %q", a, b, ea, eb)
		}
		if ea == "." || ea == ".." || strings.ContainsAny(ea, "/\x00") || a != "" && ea == "" {
			t.Errorf("%q is %q", a, ea)
		}
		if back, err := decodeName(ea); !isHashed(ea) && (err != nil || back != a) {
			t.Errorf("%q is %q, and back %q, %v", a, ea, back, err)
		}
	})
}

func TestReservedNodes(t *testing.T) {
	t.Parallel()
	for _, el := range []string{sessionsNode, identityNode, "zookeeper"} {
		if name, err := decodeName(el); err == nil && encodeName(name) == el {
			t.Errorf("%q is the line %q", el, name)
		}
	}
}

func TestNodeUUID(t *testing.T) {
	t.Parallel()
	client := "0b6f2c7d-5b5a-4c8e-9a59-9b2e4e9e1e11"
	seen := make(map[string]string)
	for _, id := range []string{
		client + ":0", client + ":1", client + ":256", client + ":281474976710655", client + ":281474976710656", client + ":01", client + ":+1",
		client, strings.ToUpper(client) + ":1", "x:1", "", "1f6f2c7d-5b5a-4c8e-9a59-9b2e4e9e1e11:1",
	} {
		u := nodeUUID(id)
		if _, err := parseUUID(u); err != nil {
			t.Errorf("%q is %q: %v", id, u, err)
		}
		if other, ok := seen[u]; ok {
			t.Errorf("%q and %q are both %s", id, other, u)
		}
		seen[u] = id
	}
	if a, b := nodeUUID(client+":7"), nodeUUID(client+":70000"); a[:clientLen] != client[:clientLen] || b[:clientLen] != client[:clientLen] {
		t.Errorf("%s and %s do not tell their client %s", a, b, client)
	}
}

// TestNodeNames checks that the names have Curator's format, byte for byte, and
// are parsed again, and that the names of other libraries are parsed.
//
// Covers: F66.
func TestNodeNames(t *testing.T) {
	t.Parallel()
	const u = "0b6f2c7d-5b5a-4c8e-9a59-9b2e4e9e1e11"
	tag := ownerTag("job")
	for want, made := range map[string]node{
		"_c_" + u + "-lock-0000000007":                {uuid: u, seq: 7, units: 1, limit: 1},
		"_c_" + u + "-__READ__0000000007":             {uuid: u, seq: 7, units: 1, limit: driver.RWLimit},
		"_c_" + u + "-__WRIT__0000000007":             {uuid: u, seq: 7, units: driver.RWLimit, limit: driver.RWLimit},
		"_c_" + u + "-sem-5-2-0000000007":             {uuid: u, seq: 7, units: 2, limit: 5},
		"_c_" + u + "-lock--2147483648":               {uuid: u, seq: math.MinInt32, units: 1, limit: 1},
		"_c_" + u + "-sem-5-2--2147483648":            {uuid: u, seq: math.MinInt32, units: 2, limit: 5},
		"_c_" + u + "-" + tag + "-lock-0000000007":    {uuid: u, owner: tag, seq: 7, units: 1, limit: 1},
		"_c_" + u + "-" + tag + "-sem-3-1-2147483647": {uuid: u, owner: tag, seq: math.MaxInt32, units: 1, limit: 3},
	} {
		if got := nodeName(made.uuid, made.owner, made.units, made.limit) + formatSeq(made.seq); got != want {
			t.Errorf("made %q, want %q", got, want)
		}
		made.name = want
		if got, ok := parseNode(want); !ok || got != made {
			t.Errorf("%q is read as %+v, want %+v", want, got, made)
		}
	}
	const kazoo = "0123456789abcdef0123456789abcdef__lock__0000000003"
	if got, ok := parseNode(kazoo); !ok || got.limit != anyLimit || got.seq != 3 {
		t.Errorf("%q is read as %+v, %v", kazoo, got, ok)
	}
	for name, limit := range map[string]int64{
		"_c_0123456789abcdef0123456789abcdef-lock-0000000003": 1, // go-zookeeper
		"lock-0000000003": 1,
		"0123456789abcdef0123456789abcdef__rlock__0000000003": driver.RWLimit, // kazoo
		"latch-0000000003":                0,
		"config":                          0,
		"lock-":                           0,
		"lock-3":                          0,
		"lock-00000000x3":                 0,
		"__lock__":                        0,
		"base-10-0000000003":              0,
		"_c_" + u + "-sem-2-3-0000000001": 0, // more units than the limit
	} {
		if got, ok := parseNode(name); ok != (limit > 0) || got.limit != limit && ok {
			t.Errorf("%q is read as %+v, %v", name, got, ok)
		}
	}
}

// TestF89_CounterGoesRound checks the order of numbers across 2^31 and 2^32.
func TestF89_CounterGoesRound(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 5 {
		seq := math.MaxInt32 - 2 + int64(i)
		names = append(names, fmt.Sprintf("lock-%010d", int32(seq)))
	}
	shuffled := slices.Clone(names)
	slices.Sort(shuffled)
	v := viewOf(shuffled)
	for i, n := range v.nodes {
		if n.name != names[i] {
			t.Fatalf("the order is %v, want %v", v.nodes, names)
		}
	}
	if s := v.position(names[3]); s.held || s.target != names[2] || s.ahead != 3 || s.alone {
		t.Errorf("the first one past 2^31 stands as %+v", s)
	}
	if s := v.position(names[0]); !s.held {
		t.Errorf("the first one stands as %+v", s)
	}
	// The server may give the last number, and the numbers after it, to several
	// nodes.
	for _, seq := range []string{"2147483647", "-2147483648", "-2147483647"} {
		v = viewOf([]string{"a-lock-" + seq, "b-lock-" + seq})
		if s := v.position("b-lock-" + seq); s.held {
			t.Errorf("beside another one of number %s it stands as %+v", seq, s)
		}
	}
	if !before(-1, 0) || before(0, -1) {
		t.Error("the order is wrong at 2^32")
	}
}

// TestPositionInQueue checks which nodes hold and which node each waiter waits for,
// for each kind of lock.
func TestPositionInQueue(t *testing.T) {
	t.Parallel()
	queue := func(kinds string) []string {
		var names []string
		for i, k := range strings.Fields(kinds) {
			names = append(names, fmt.Sprintf("x%s%010d", map[string]string{
				"m": lockMark, "r": readMark, "w": writeMark, "1": "-sem-3-1-", "2": "-sem-3-2-", "3": "-sem-3-3-",
				"k": kazooMark, "q": kazooReadMark,
			}[k], i))
		}
		return names
	}
	for _, c := range []struct {
		queue  string
		at     int
		held   bool
		target int // index, -1 for none
		alone  bool
		head   bool
	}{
		{"m", 0, true, -1, false, false},
		{"m m", 1, false, 0, true, false},
		{"m m m", 2, false, 1, false, false},
		{"r r r", 2, true, -1, false, false},
		{"w r", 1, false, 0, true, false},
		{"w r r", 2, false, 0, true, false}, // all readers behind one writer wake together
		{"r w r", 2, false, 1, true, false},
		{"r w w r", 3, false, 2, false, false},
		{"r w", 1, false, 0, true, false},
		{"r r w", 2, false, 1, false, false},
		{"w w", 1, false, 0, false, false}, // the writer may go on as a reader
		{"1 1 1", 2, true, -1, false, false},
		{"1 1 1 1", 3, false, 2, false, true}, // any of the three may leave first
		{"1 1 1 1 1", 4, false, 3, false, false},
		{"3 1", 1, false, 0, true, false},
		{"1 3", 1, false, 0, true, false},
		{"2 2", 1, false, 0, true, false},
		{"2 1 2", 2, false, 0, true, false},
		{"k m", 1, false, 0, true, false},
		{"k r", 1, false, 0, true, false},
		{"k w", 1, false, 0, true, false},
		{"k 1", 1, false, 0, true, false},
		{"1 k 1", 2, false, 1, true, false},
		{"k k m", 2, false, 1, false, false},
		{"q r", 1, true, -1, false, false},
		{"q w", 1, false, 0, true, false},
		{"m w", 1, false, 0, true, false}, // another kind of lock is in the way, however many units it takes
	} {
		names := queue(c.queue)
		v := viewOf(names)
		s := v.position(names[c.at])
		target := -1
		if !s.held {
			target = slices.Index(names, s.target)
		}
		if !s.found || s.held != c.held || target != c.target || s.alone != c.alone || s.head != c.head {
			t.Errorf("%q: %d stands as %+v", c.queue, c.at, s)
		}
	}
}

// TestOwnersPlaces checks that nodes of one number are one place, which ends
// only with the last of them.
func TestOwnersPlaces(t *testing.T) {
	t.Parallel()
	const u = "0b6f2c7d-5b5a-4c8e-9a59-9b2e4e9e1e1"
	tag := ownerTag("job")
	a := "_c_" + u + "1-" + tag + "-lock-0000000001"
	b := "_c_" + u + "2-" + tag + "-lock-0000000001"
	c := "_c_" + u + "3-lock-0000000002"
	v := viewOf([]string{c, b, a})
	for _, name := range []string{a, b} {
		if s := v.position(name); !s.held {
			t.Errorf("%s stands as %+v", name, s)
		}
	}
	if s := v.position(c); s.held || s.alone || s.ahead != 1 {
		t.Errorf("behind the owner it stands as %+v", s)
	}
	v = viewOf([]string{c, a})
	if s := v.position(c); s.alone {
		t.Errorf("an owner may get another node at any time: %+v", s)
	}
}

func TestBases(t *testing.T) {
	t.Parallel()
	v := viewOf([]string{"base-100-0000000003", "lock-0000000004", "base-300-0000000006", "base-x-0000000001", "lock-0000000001"})
	for seq, want := range map[int32]uint64{2: 0, 4: 100, 7: 300} {
		if got := v.base(seq); got != want {
			t.Errorf("the base of %d is %d, want %d", seq, got, want)
		}
	}
	if got := v.plusFor(1000, 800); got != 0 {
		t.Errorf("a floor that is reached asks for %d", got)
	}
	if got := v.plusFor(2000, 800); got != 1200 {
		t.Errorf("a floor above asks for %d, want 1200", got)
	}
}

// TestF90_TimeoutsFitTTLs checks that the TTL for a session's time-out needs no longer
// time-out than that.
func TestF90_TimeoutsFitTTLs(t *testing.T) {
	t.Parallel()
	for _, tick := range []int{100, 500, 2000} {
		for _, ms := range []int{1000, 2345, 30_000, 600_000} {
			tk, timeout := time.Duration(tick)*time.Millisecond, time.Duration(ms)*time.Millisecond
			ttl := ttlFor(timeout, tk)
			if ttl > 0 && timeoutFor(ttl, tk) > timeout {
				t.Errorf("tick %v: a TTL of %v needs %v, more than %v", tk, ttl, timeoutFor(ttl, tk), timeout)
			}
		}
	}
}

// TestTextsLikeUUIDsAreRefused checks that texts that are not quite UUIDs are refused: with digits
// moved, in upper case, with other dashes.
func TestTextsLikeUUIDsAreRefused(t *testing.T) {
	const good = "00112233-4455-6677-8899-aabbccddeeff"
	b, err := parseUUID(good)
	if err != nil || formatUUID(b) != good || b[0] != 0 || b[4] != 0x44 || b[15] != 0xff {
		t.Fatalf("%x, %v", b, err)
	}
	for _, bad := range []string{
		"", good[1:], good + "0", strings.ToUpper(good), strings.ReplaceAll(good, "-", "_"), "0011223-34455-6677-8899-aabbccddeeff",
		strings.Repeat("-", uuidLen), strings.Repeat("0", uuidLen), "0011223g" + good[8:], good[:35] + "\x00",
	} {
		if b, err := parseUUID(bad); err == nil {
			t.Errorf("%q is %x", bad, b)
		}
	}
}

// TestListingCosts checks the cost of reading a listing of 64 nodes, which each
// Join reads: the allocations do not grow with the number of nodes, apart from
// the size of the buffer.
func TestListingCosts(t *testing.T) {
	var children []string
	for i := range 64 {
		children = append(children, nodeName(nodeUUID(fmt.Sprintf("%08x-1111-4111-8111-111111111111:%d", i, i)), "", 1, 1)+formatSeq(int32(64-i)))
	}
	n := math.Inf(1)
	for try := 0; n > 4 && try < 10; try++ { // those of other goroutines count as well
		n = min(n, testing.AllocsPerRun(100, func() {
			v := viewOf(children)
			if s := v.position(children[0]); !s.found || s.ahead != 63 || !s.last {
				t.Fatalf("%+v", s)
			}
		}))
	}
	if n > 4 {
		t.Errorf("%v allocations", n)
	}
}
