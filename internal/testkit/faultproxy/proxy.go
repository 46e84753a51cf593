// Package faultproxy disturbs what a client and its server say to each other, on the
// way: a [Proxy] between the two cuts a message off before it arrives or after
// it was carried out, ends the connection in the ways in which connections end,
// and keeps one or both directions silent for a while, as a network that is
// split does. [EveryStep] cuts every message of every request of a driver.
//
// A message is what one read of the sender's bytes brings. Where that would cut a
// request of several messages in two, or know too little of when it was carried
// out, a [Protocol] says where requests and answers end. Nothing is doubled: TCP
// does not do that either. Requests are doubled by package faults.
package faultproxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// When is the time of a cut, seen from the message.
type When string

// How is the fate of the connection.
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

	mu           sync.Mutex
	closed       bool
	messagesLeft int // messages to the server until the cut, 0 for none
	when         When
	how          How
	healed       chan struct{} // closed when there is no silence
	bothWays     bool          // messages to the server are held too
	delay        time.Duration // of each message, in each direction
	links        map[*link]bool
	silenced     []*link        // those that a cut has silenced
	cut          sync.WaitGroup // a cut that goes on
}

// link is one connection through a Proxy.
type link struct {
	Protocol
	p        *Proxy
	in, out  net.Conn
	id       atomic.Uint32 // at the server, where its protocol says it
	mute     chan struct{} // closed: answers are kept from the client
	unmuted  chan struct{} // closed when the server has answered a muted client, or never will
	muteOnce sync.Once
	ended    chan struct{} // closed when it is over
	dropping atomic.Bool   // nothing passes any more
	endOnce  sync.Once

	toServer, toClient delayLine
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
	return at(t, listen, target, unknownProtocol, nil)
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
		k := &link{Protocol: p.protocol(), p: p, in: in, out: out, mute: make(chan struct{}), unmuted: make(chan struct{}), ended: make(chan struct{})}
		k.toServer = delayLine{k: k, to: out}
		k.toClient = delayLine{k: k, to: in}
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

// Arm cuts the k-th message to the server from now on.
func (p *Proxy) Arm(k int, when When, how How) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messagesLeft, p.when, p.how = k, when, how
}

// Disarm reports whether the cut was still to come. It waits for a cut that is
// under way, and ends a connection that the cut has silenced.
func (p *Proxy) Disarm() bool {
	p.mu.Lock()
	waits := p.messagesLeft > 0
	p.messagesLeft = 0
	p.mu.Unlock()
	p.cut.Wait()
	p.mu.Lock()
	stifled := p.silenced
	p.silenced = nil
	p.mu.Unlock()
	for _, k := range stifled {
		k.end(Reset)
	}
	return waits
}

// Split holds the server's messages back, and with both the clients' messages
// too, until Heal. New connections are accepted, and get no answer.
func (p *Proxy) Split(both bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.healed:
		p.healed = make(chan struct{})
	default:
	}
	p.bothWays = both
}

// Heal ends a Split: the messages that were held back arrive.
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

// countMessage returns how the message that comes is to be cut, or "". A cut begins.
func (p *Proxy) countMessage() (When, How) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.messagesLeft == 0 {
		return "", ""
	}
	if p.messagesLeft--; p.messagesLeft > 0 {
		return "", ""
	}
	p.cut.Add(1)
	return p.when, p.how
}

// pass waits for the end of a split that holds messages in this direction.
func (k *link) pass(toServer bool) {
	k.p.mu.Lock()
	healed, holds := k.p.healed, !toServer || k.p.bothWays
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
	k.endOnce.Do(func() { close(k.ended) })
	_ = k.in.Close()
	_ = k.out.Close()
}

// silence is the end of a cut.
func (k *link) silence(how How) {
	defer k.p.cut.Done()
	if how != Silence {
		k.end(how)
		return
	}
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	k.p.silenced = append(k.p.silenced, k)
}

// quiet is the time in which a server answers a message that is cut after it.
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
		if silent || k.dropping.Load() {
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
			when, how = k.p.countMessage()
		}
		if how == Killed {
			k.p.kill(k.id.Load())
			k.p.cut.Done()
			_ = k.toServer.send(request)
			silent = true // the server's own message about it arrives
			continue
		}
		if when == Before {
			silent = true
			k.muteOnce.Do(func() { close(k.mute) })
			k.silence(how)
			continue
		}
		if when == After {
			k.muteOnce.Do(func() { close(k.mute) })
		}
		if err := k.toServer.send(request); err != nil {
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
			case <-k.unmuted:
			case <-time.After(quiet):
			}
			k.silence(how)
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
		case <-k.mute:
			deaf = true
		default:
		}
		if deaf && !told && (m.Done || err != nil) {
			told = true
			close(k.unmuted)
		}
		if err != nil {
			// The server has gone: a client that a cut has silenced does not
			// hear of it.
			if !deaf || errors.Is(err, net.ErrClosed) {
				k.toClient.drain()
				k.end(Close)
			}
			return
		}
		if deaf || k.dropping.Load() {
			continue
		}
		k.pass(false)
		if err := k.toClient.send(m.Bytes); err != nil {
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
