package zklock_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF90_LongLine checks that a queue that is longer than clients in Java can
// read is refused with one clear error. No node of the refused ticket stays in
// the queue, and the tickets that are already in it go on.
func TestF90_LongLine(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("long")
	look := raw(t, s.Addrs()...)
	d, other := open(t, s.URL("", "")), open(t, s.URL("", ""))
	defer d.Close()
	defer other.Close()
	first := ticket2(name, 1)
	first.TTL = 5 * time.Minute // nobody renews it, and the machine may be slow
	join(t, d, first, driver.Held)
	n := 1
	fill := func(to int) {
		t.Helper()
		for n < to {
			var ops []any
			for ; n < to && len(ops) < 500; n++ {
				ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/_c_%s-lock-", lineOf(name), uuidOf(n)),
					Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential})
			}
			if _, err := look.Multi(ops...); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, size := range []int{10_000, 13_000} {
		fill(size)
		_, err := other.Join(t.Context(), ticket2(name, size), true)
		if driver.ClassOf(err) != driver.Refused || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has %d tickets; the maximum is 10000", size+1)) {
			t.Errorf("with %d in line: %v (%v)", size, err, driver.ClassOf(err))
		}
		if p, err := other.Join(t.Context(), ticket2(name, size+1), false); err != nil || p.State != driver.Gone {
			t.Errorf("with %d in line, who does not wait gets %v, %v", size, p.State, err)
		}
		if left := len(children(t, look, lineOf(name))); left != size {
			t.Errorf("of %d nodes there are %d", size, left)
		}
	}
	if ps, err := d.Renew(t.Context(), []driver.Ref{{Ticket: first, State: driver.Held}}); err != nil || ps[0].State != driver.Held {
		t.Errorf("the holder: %+v, %v", ps, err)
	}
	leave(t, d, first, driver.Held)
}

// snapshot is the newest snapshot of a server.
type snapshot struct {
	file  string
	bytes []byte
	seals []int // the positions of the file's checksums
	at    int   // the position of a path, negative if it has none
}

// newestSnapshot reads the newest snapshot of a server, and looks for a path in it.
func newestSnapshot(t *testing.T, m *servers.ZooKeeperMember, path string) (s snapshot) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.Data(), "version-2", "snapshot.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("snapshots: %v, %v", files, err)
	}
	s.file = slices.MaxFunc(files, func(a, b string) int {
		if len(a) != len(b) { // the numbers are hexadecimal
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	b, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	s.bytes = b
	// Each checksum is of the bytes before it, and is followed by a slash as a string.
	for i := 8; i+5 <= len(b); i++ {
		if bytes.Equal(b[i:i+5], []byte{0, 0, 0, 1, '/'}) && binary.BigEndian.Uint64(b[i-8:]) == uint64(adler32.Checksum(b[:i-8])) {
			s.seals = append(s.seals, i-8)
		}
	}
	s.at = bytes.Index(b, append(binary.BigEndian.AppendUint32(nil, uint32(len(path))), path...))
	return s
}

// awaitSnapshot waits until a server has written a whole snapshot with a path. A server
// that starts answers before it has.
func awaitSnapshot(t *testing.T, m *servers.ZooKeeperMember, path string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s := newestSnapshot(t, m, path)
		if s.at >= 0 && len(s.seals) > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s has no %s, or no checksum", s.file, path)
		}
	}
}

// presetCounter sets the counter of a path's sequential nodes, in the snapshot
// of a server that is not running.
func presetCounter(t *testing.T, m *servers.ZooKeeperMember, path string, n int32) {
	t.Helper()
	s := newestSnapshot(t, m, path)
	newest, b, seals, at := s.file, s.bytes, s.seals, s.at
	if at < 0 || len(seals) == 0 {
		t.Fatalf("%s has no %s, or no checksum", newest, path)
	}
	at += 4 + len(path)
	if size := int32(binary.BigEndian.Uint32(b[at:])); size > 0 { // size of the data
		at += int(size)
	}
	at += 4 + 8 + 4*8 + 4 // the data's size, ACL, two transactions and two times, version
	binary.BigEndian.PutUint32(b[at:], uint32(n))
	for _, i := range seals {
		binary.BigEndian.PutUint64(b[i:], uint64(adler32.Checksum(b[:i])))
	}
	if err := os.WriteFile(newest, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestF89_CounterAtItsEnd checks a queue whose counter at the server reaches
// its end, where ZooKeeper gives the last number again and again. The queue's
// tickets come to their turns, one at a time, and once they have gone the queue
// begins anew.
func TestF89_CounterAtItsEnd(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{})
	m := s.Members[0]
	const name = "counter"
	t.Run("prepare", func(t *testing.T) { // its connection ends before the server does
		look := raw(t, s.Addrs()...)
		for _, path := range []string{"/holdfast", lineOf(name)} {
			if _, err := look.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
		}
	})
	m.Restart(t) // writes a snapshot when it starts
	awaitSnapshot(t, m, lineOf(name))
	m.Kill()
	presetCounter(t, m, lineOf(name), math.MaxInt32-2)
	m.Restart(t)
	look := raw(t, s.Addrs()...)
	d := open(t, s.URL("", ""))
	defer d.Close()
	ps := watch(t, d)
	first, second := ticket2(name, 0), ticket2(name, 1)
	first.TTL, second.TTL = 5*time.Minute, 5*time.Minute // long enough for a slow machine
	p := join(t, d, first, driver.Held)
	join(t, d, second, driver.Waiting)
	for i := 2; i < 5; i++ {
		for _, wait := range []bool{true, false} {
			tk := ticket2(name, i)
			switch got, err := d.Join(t.Context(), tk, wait); {
			case wait && (driver.ClassOf(err) != driver.NotDone || err == nil || !strings.Contains(err.Error(), "last number")):
				t.Errorf("number %d: %v, %v (%v)", i, got.State, err, driver.ClassOf(err))
			case !wait && (err != nil || got.State != driver.Gone):
				t.Errorf("number %d, which does not wait: %v, %v", i, got.State, err)
			}
		}
	}
	if left := children(t, look, lineOf(name)); len(left) != 2 {
		t.Fatalf("the line has %q", left)
	}
	leave(t, d, first, driver.Held)
	until(t, "the second one holds", func() bool { return ps.state(second.ID) == driver.Held })
	leave(t, d, second, driver.Held)

	// Users go on using the queue as before.
	last := p.Token
	var cs []*holdfast.Client
	for range 3 {
		cs = append(cs, newClient(t, s.URL("", "")))
	}
	inside := 0
	for range 2 {
		var wg sync.WaitGroup
		for _, c := range cs {
			wg.Go(func() {
				err := c.Do(t.Context(), name, func(ctx context.Context) error {
					if inside++; inside != 1 {
						t.Errorf("%d inside", inside)
					}
					if token := holdfast.Token(ctx, name); token <= last {
						t.Errorf("token %d after %d", token, last)
					} else {
						last = token
					}
					inside--
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	tk := ticket2(name, 9)
	join(t, d, tk, driver.Held)
	if names := children(t, look, lineOf(name)); len(names) != 1 || !strings.Contains(names[0], "-lock-00000000") {
		t.Errorf("afterwards the line has %q", names)
	}
	leave(t, d, tk, driver.Held)
}
