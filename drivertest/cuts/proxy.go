// Package cuts disturbs what a client and its server say to each other, on the
// way: a [Proxy] between the two cuts a message off before it arrives or after
// it was carried out, ends the connection in the ways in which connections end,
// and keeps one or both directions silent for a while, as a network that is
// split does. [EveryStep] cuts every message of every request of a driver.
//
// A message is what one read of the sender's bytes brings. Where that would cut a
// request of several messages in two, or know too little of when it was carried
// out, a [Protocol] says where requests and answers end. Nothing is doubled: TCP
// does not do that either. Requests are doubled by package faults.
package cuts

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// When says what becomes of the message that is cut.
type When string

// How says what becomes of its connection.
type How string

// The ways to cut.
const (
	Before When = "before it arrived"
	After  When = "after it was carried out"

	Close   How = "closed"
	Reset   How = "reset"
	Silence How = "silent" // it stays open and says nothing more, until Disarm
	Killed  How = "killed" // by the server, Before alone; it says so if its protocol has a way
)

// Proxy passes connections on to one server. Its methods are safe for
// concurrent use.
type Proxy struct {
	l        net.Listener
	target   string
	protocol func() Protocol
	kill     func(id uint32) // for Killed
	wg       sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	left    int // messages to the server until the cut, 0 for none
	when    When
	how     How
	healed  chan struct{} // closed when there is no silence
	mute    bool          // messages to the server are held too
	links   map[*link]bool
	stifled []*link        // those that a cut has silenced
	cut     sync.WaitGroup // a cut that goes on
}

// link is one connection through a Proxy.
type link struct {
	Protocol
	p       *Proxy
	in, out net.Conn
	id      atomic.Uint32 // at the server, where its protocol says it
	deaf    chan struct{} // closed: answers are kept from the client
	told    chan struct{} // closed when the server has answered a deaf client, or never will
	once    sync.Once
	ended   chan struct{} // closed when it is over
	over    sync.Once
}

// Between listens on a free loopback port and passes on what comes to the
// server at target, host and port. It ends with the test.
func Between(t testing.TB, target string) *Proxy {
	t.Helper()
	return At(t, "127.0.0.1:0", target)
}

// At is Between on another address to listen on.
func At(t testing.TB, listen, target string) *Proxy {
	t.Helper()
	return at(t, listen, target, reads, nil)
}

func at(t testing.TB, listen, target string, protocol func() Protocol, kill func(id uint32)) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{l: l, target: target, protocol: protocol, kill: kill, links: make(map[*link]bool), healed: make(chan struct{})}
	close(p.healed)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the host and port to connect to.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

func (p *Proxy) close() {
	_ = p.l.Close()
	p.Heal()
	p.mu.Lock()
	p.closed = true
	for k := range p.links {
		k.end(Close)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = in.Close() // as good as refused
			continue
		}
		k := &link{Protocol: p.protocol(), p: p, in: in, out: out, deaf: make(chan struct{}), told: make(chan struct{}), ended: make(chan struct{})}
		p.mu.Lock()
		p.links[k] = true
		closed := p.closed
		p.mu.Unlock()
		p.wg.Go(k.requests)
		p.wg.Go(k.answers)
		if closed {
			k.end(Close)
		}
	}
}

// Arm has the k-th message to the server from now cut.
func (p *Proxy) Arm(k int, when When, how How) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.when, p.how = k, when, how
}

// Disarm says whether the cut was still to come. One that goes on is waited for,
// and a connection that it has silenced ends now.
func (p *Proxy) Disarm() bool {
	p.mu.Lock()
	waits := p.left > 0
	p.left = 0
	p.mu.Unlock()
	p.cut.Wait()
	p.mu.Lock()
	stifled := p.stifled
	p.stifled = nil
	p.mu.Unlock()
	for _, k := range stifled {
		k.end(Reset)
	}
	return waits
}

// Split keeps back what the server says, and with both what clients say too,
// until Heal. New connections are accepted, and hear nothing.
func (p *Proxy) Split(both bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.healed:
		p.healed = make(chan struct{})
	default:
	}
	p.mute = both
}

// Heal ends a Split: what was kept back arrives.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.healed:
	default:
		close(p.healed)
	}
}

// Cut ends all connections.
func (p *Proxy) Cut(how How) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.links {
		k.end(how)
	}
}

// next returns how the message that comes is to be cut, or "". A cut begins.
func (p *Proxy) next() (When, How) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return "", ""
	}
	if p.left--; p.left > 0 {
		return "", ""
	}
	p.cut.Add(1)
	return p.when, p.how
}

// pass waits for the end of a split that holds messages in this direction.
func (k *link) pass(toServer bool) {
	k.p.mu.Lock()
	healed, holds := k.p.healed, !toServer || k.p.mute
	k.p.mu.Unlock()
	if holds {
		select {
		case <-healed:
		case <-k.ended:
		}
	}
}

// end ends a connection in one of the ways; silent ones stay open.
func (k *link) end(how How) {
	if how == Reset {
		if c, ok := k.in.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
	}
	k.over.Do(func() { close(k.ended) })
	_ = k.in.Close()
	_ = k.out.Close()
}

// stifle is the end of a cut.
func (k *link) stifle(how How) {
	defer k.p.cut.Done()
	if how != Silence {
		k.end(how)
		return
	}
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	k.p.stifled = append(k.p.stifled, k)
}

// quiet is how long a server may take to answer a message that is cut after it.
const quiet = 200 * time.Millisecond

func (k *link) requests() {
	defer k.p.forget(k)
	var request []byte
	for silent := false; ; {
		m, err := k.Client(k.in)
		if err != nil {
			k.end(Close)
			return
		}
		if silent {
			continue
		}
		request = append(request, m.Bytes...)
		if !m.Pass {
			continue
		}
		k.pass(true)
		var when When
		var how How
		if m.Trip {
			when, how = k.p.next()
		}
		if how == Killed {
			k.p.kill(k.id.Load())
			k.p.cut.Done()
			_, _ = k.out.Write(request)
			silent = true // what the server says of it arrives
			continue
		}
		if when == Before {
			silent = true
			k.once.Do(func() { close(k.deaf) })
			k.stifle(how)
			continue
		}
		if when == After {
			k.once.Do(func() { close(k.deaf) })
		}
		if _, err := k.out.Write(request); err != nil {
			k.end(Close)
			if when == After {
				k.p.cut.Done()
			}
			return
		}
		request = request[:0]
		if when == After {
			silent = true
			select {
			case <-k.told:
			case <-time.After(quiet):
			}
			k.stifle(how)
		}
	}
}

func (k *link) answers() {
	for told := false; ; {
		m, err := k.Server(k.out)
		if m.ID != 0 {
			k.id.Store(m.ID)
		}
		deaf := false
		select {
		case <-k.deaf:
			deaf = true
		default:
		}
		if deaf && !told && (m.Done || err != nil) {
			told = true
			close(k.told)
		}
		if err != nil {
			// The server has gone: a client that a cut has silenced does not
			// hear of it.
			if !deaf || errors.Is(err, net.ErrClosed) {
				k.end(Close)
			}
			return
		}
		if deaf {
			continue
		}
		k.pass(false)
		if _, err := k.in.Write(m.Bytes); err != nil {
			k.end(Close)
			return
		}
	}
}

func (p *Proxy) forget(k *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, k)
}
