package zklock_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/zklock"
)

// The protocol's numbers of the operations.
const (
	opDelete    = 2
	opExists    = 3
	opGet       = 4
	opSet       = 5
	opSync      = 9
	opPing      = 11
	opChildren  = 12
	opMulti     = 14
	opContainer = 19
	opClose     = -11
	opAuth      = 100
	opWatches   = 101
	opCreate    = 1
)

// A wire makes connections, counts their requests, and breaks them.
type wire struct {
	mu    sync.Mutex
	count map[int32]int
	conns map[*wireConn]bool
	fault func(op int32) cut // called for every request
	dark  bool               // nothing gets through, and there is no error
	last  session            // of the last handshake
}

type cut int

const (
	pass      cut = iota
	cutBefore     // the connection breaks before the request is sent
	cutAfter      // the connection breaks when it has been carried out
	stall         // the request hangs until the connection is closed
)

type session struct {
	id     int64
	passwd []byte
}

func newWire() *wire {
	return &wire{count: make(map[int32]int), conns: make(map[*wireConn]bool)}
}

// Dial implements zk.Dialer.
func (w *wire) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	w.mu.Lock()
	dark := w.dark
	w.mu.Unlock()
	if dark {
		time.Sleep(min(timeout, 50*time.Millisecond))
		return nil, errors.New("nobody answers")
	}
	c, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	wc := &wireConn{Conn: c, w: w, lit: make(chan struct{})}
	w.mu.Lock()
	w.conns[wc] = true
	w.mu.Unlock()
	return wc, nil
}

type wireConn struct {
	net.Conn
	w       *wire
	began   bool
	reply   []byte
	lost    bool          // answers are thrown away
	lit     chan struct{} // closed with the connection
	closing sync.Once
}

func (c *wireConn) Close() error {
	c.closing.Do(func() { close(c.lit) })
	c.w.mu.Lock()
	delete(c.w.conns, c)
	c.w.mu.Unlock()
	return c.Conn.Close()
}

// Write takes one packet: the client library writes each in one call.
func (c *wireConn) Write(b []byte) (int, error) {
	if !c.began {
		c.began = true
		return c.Conn.Write(b)
	}
	op := int32(binary.BigEndian.Uint32(b[8:]))
	c.w.mu.Lock()
	c.w.count[op]++
	dark := c.w.dark
	do := pass
	if c.w.fault != nil {
		do = c.w.fault(op)
	}
	if do == cutAfter {
		c.lost = true
	}
	c.w.mu.Unlock()
	switch {
	case dark:
		return len(b), nil
	case do == cutBefore:
		c.Close()
		return 0, net.ErrClosed
	case do == stall:
		<-c.lit
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	if do == cutAfter {
		time.AfterFunc(100*time.Millisecond, func() { c.Close() })
	}
	return n, err
}

func (c *wireConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		c.w.mu.Lock()
		silent := c.w.dark || c.lost
		if len(c.reply) < 40 {
			c.reply = append(c.reply, b[:n]...)
			if len(c.reply) >= 40 {
				c.w.last = session{int64(binary.BigEndian.Uint64(c.reply[12:])), append([]byte(nil), c.reply[24:40]...)}
			}
		}
		c.w.mu.Unlock()
		if !silent || err != nil {
			return n, err
		}
	}
}

// on sets the fault and returns a function that removes it.
func (w *wire) on(f func(op int32) cut) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// once cuts at the n-th request of a kind from now on, and at no other.
func (w *wire) once(op int32, n int, do cut) (hit func() bool) {
	done := false
	w.on(func(o int32) cut {
		if o == op && !done {
			if n--; n == 0 {
				done = true
				return do
			}
		}
		return pass
	})
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return done
	}
}

// setDark hides the servers, or shows them again; showing them breaks all
// connections.
func (w *wire) setDark(dark bool) {
	w.mu.Lock()
	w.dark = dark
	w.mu.Unlock()
	if !dark {
		w.closeAll()
	}
}

// lose hides the servers, and breaks all connections at once.
func (w *wire) lose() {
	w.setDark(true)
	w.closeAll()
}

func (w *wire) closeAll() {
	w.mu.Lock()
	cs := slices.Collect(maps.Keys(w.conns))
	w.mu.Unlock()
	for _, c := range cs {
		c.Close()
	}
}

// breakAll breaks the open connections.
func (w *wire) breakAll() { w.setDark(false) }

// ops returns the number of requests, without those that only keep sessions
// alive.
func (w *wire) ops() (n int, each map[int32]int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	each = make(map[int32]int)
	for op, k := range w.count {
		switch op {
		case opPing, opSync, opClose, opAuth, opWatches:
		default:
			n += k
			each[op] = k
		}
	}
	return n, each
}

func (w *wire) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.count)
}

// expire ends the session made last, as its time-out would.
func (w *wire) expire(t *testing.T, addr string) {
	t.Helper()
	w.setDark(true) // otherwise the driver would take its session back
	defer w.setDark(false)
	w.mu.Lock()
	s := w.last
	w.mu.Unlock()
	until(t, "the session is closed", func() bool { return s.end(addr) == nil })
}

// end takes the session over, with its password, and closes it.
func (s session) end(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	b := binary.BigEndian.AppendUint32(nil, 44)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint32(b, 10_000)
	b = binary.BigEndian.AppendUint64(b, uint64(s.id))
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.passwd)))
	b = append(b, s.passwd...)
	if _, err := c.Write(b); err != nil {
		return err
	}
	buf := make([]byte, 256)
	n, err := c.Read(buf)
	if err != nil || n < 20 {
		return fmt.Errorf("%d bytes: %w", n, err)
	}
	if binary.BigEndian.Uint64(buf[12:]) == 0 {
		return nil // it has expired by itself
	}
	closing := int32(opClose)
	b = binary.BigEndian.AppendUint32(nil, 8)
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(closing))
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err = c.Read(buf)
	return err
}

// openWire opens a driver whose connections go through a wire.
func openWire(t *testing.T, servers []string, tick time.Duration) (*zklock.Driver, *wire) {
	t.Helper()
	w := newWire()
	d, err := zklock.Connect(t.Context(), servers, &zklock.Options{Tick: tick, Dial: w.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.on(nil)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, w
}

// raw returns a connection with which to read nodes.
func raw(t *testing.T, addrs ...string) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		for range events {
		}
	})
	return c
}

// children lists a path; a missing path has none.
func children(t *testing.T, c *zk.Conn, path string) []string {
	t.Helper()
	names, _, err := c.Children(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return names
}

// until waits for a condition.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute: still not: %s", what)
		}
	}
}

// gap is the state of the empty id after a gap in the pushes.
const gap = driver.State(99)

// pushes collects the pushes of a driver.
type pushes struct {
	mu  sync.Mutex
	got map[string]driver.Status
}

func watch(t *testing.T, d driver.Driver) *pushes {
	t.Helper()
	p := &pushes{got: make(map[string]driver.Status)}
	err := d.Watch(t.Context(), func(id string, place driver.Status) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if id == "" {
			place.State = gap
		}
		if place.State >= p.got[id].State {
			p.got[id] = place
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pushes) state(id string) driver.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got[id].State
}
