package etcdlock_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// gate passes connections on to a server until it is shut. Then no byte passes
// in either direction, and neither side gets an error.
type gate struct {
	net.Listener
	mu   sync.Mutex
	shut bool
	open chan struct{}
	wg   sync.WaitGroup
	all  []net.Conn
}

func newGate(t testing.TB, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l, open: make(chan struct{})}
	close(g.open)
	g.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			g.mu.Lock()
			g.all = append(g.all, in, out)
			g.mu.Unlock()
			g.wg.Go(func() { g.copy(in, out) })
			g.wg.Go(func() { g.copy(out, in) })
		}
	})
	t.Cleanup(func() {
		g.set(true)
		l.Close()
		g.mu.Lock()
		for _, c := range g.all {
			c.Close()
		}
		g.mu.Unlock()
		g.wg.Wait()
	})
	return g
}

func (g *gate) copy(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		<-open
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				from.Close()
			}
			return
		}
	}
}

// set opens or shuts the gate.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == !open {
		return
	}
	g.shut = !open
	if open {
		close(g.open)
	} else {
		g.open = make(chan struct{})
	}
}

// TestF74_ClientCutOffReportsLoss cuts a client off from every member. It checks that the
// hold reports its loss before the lease can have ended, that the next client
// holds in time (G3), and that the first client works again afterwards.
//
// Covers: F14.
func TestF74_ClientCutOffReportsLoss(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		const ttl = 3 * time.Second
		s := servers.SharedEtcd(t, v)
		g := newGate(t, s.Members[0].Addr())
		d, err := etcdlock.Open(ctx, "etcd://"+g.Addr().String()+"?prefix=cut/")
		if err != nil {
			t.Fatal(err)
		}
		a, b := locksOn(t, d, holdfast.WithTTL(ttl)), locks(t, s, "prefix=cut/", holdfast.WithTTL(ttl))
		h := lock(t, a, "n")
		time.Sleep(ttl / 2) // long enough for a renewal or two
		got := make(chan time.Time, 1)
		next := locking(t, b, "n")
		hold := make(chan *holdfast.Hold, 1)
		early := false // whether the hold was not lost when the next one began
		go func() {
			bh := <-next
			early = h.Err() == nil
			got <- time.Now()
			hold <- bh
		}()
		waiting(t, b, "n", 2)
		g.set(false)
		cut := time.Now()
		lost(t, h, time.Minute)
		told := time.Now()
		if _, err := a.Mutex("n").TryLock(within(t, 20*time.Second)); err == nil || errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock while cut off: %v", err)
		}
		granted := <-got
		t.Logf("told after %v, the next one held after %v", told.Sub(cut), granted.Sub(cut))
		if early {
			t.Errorf("the next one held while the first had not lost its hold, which was told %v later", told.Sub(granted))
		}
		if late := granted.Sub(cut) - ttl - ttl/20 - etcdlock.Granularity - 250*time.Millisecond; late > 10*time.Second { // allows for a busy machine
			t.Errorf("the next one held %v too late", late)
		}
		g.set(true)
		bh := taken(t, hold)
		if err := bh.Unlock(); err != nil {
			t.Error(err)
		}
		var again *holdfast.Hold
		eventually(t, "the client locks again", func() bool {
			again, err = a.Mutex("n").Lock(within(t, 30*time.Second))
			return err == nil
		})
		if again.Token() <= bh.Token() {
			t.Errorf("token %d after %d", again.Token(), bh.Token())
		}
		again.Unlock()
	})
}
