package faultproxy

import (
	"net"
	"slices"
	"time"
)

// Delay has each message arrive later by each, in both directions: a round trip
// takes twice as long more. Messages do not wait for one another, as on a long
// cable. 0 ends it.
func (p *Proxy) Delay(each time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = each
}

// delayLine is one direction of a link. One goroutine sends.
type delayLine struct {
	k     *link
	to    net.Conn
	queue chan delayedMessage // nil until something was delayed
	last  time.Time           // when the last one in the queue arrives
	sent  chan struct{}
}

// delayedMessage is a message under way.
type delayedMessage struct {
	bytes []byte
	at    time.Time
}

// send sends a message, or has it arrive later.
func (w *delayLine) send(b []byte) error {
	w.k.p.mu.Lock()
	delay := w.k.p.delay
	w.k.p.mu.Unlock()
	if delay == 0 && w.queue == nil {
		_, err := w.to.Write(b)
		return err
	}
	if w.queue == nil {
		w.queue, w.sent = make(chan delayedMessage, 1024), make(chan struct{})
		w.k.p.wg.Go(w.deliver)
	}
	if at := time.Now().Add(delay); at.After(w.last) {
		w.last = at
	}
	select {
	case w.queue <- delayedMessage{slices.Clone(b), w.last}:
		return nil
	case <-w.k.ended:
		return net.ErrClosed
	}
}

// deliver delivers the messages until the link ends or nothing more comes.
func (w *delayLine) deliver() {
	defer close(w.sent)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var p delayedMessage
		var more bool
		select {
		case p, more = <-w.queue:
		case <-w.k.ended:
			return
		}
		if !more {
			return
		}
		timer.Reset(time.Until(p.at))
		select {
		case <-timer.C:
		case <-w.k.ended:
			return
		}
		if _, err := w.to.Write(p.bytes); err != nil {
			w.k.end(Close)
			return
		}
	}
}

// drain waits until everything was delivered. Nothing may be sent afterwards.
func (w *delayLine) drain() {
	if w.queue != nil {
		close(w.queue)
		<-w.sent
	}
}
