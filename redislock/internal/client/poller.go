package client

import (
	"context"
	"sync"
	"time"
)

// Poller watches the contexts of the requests that wait together. The core's
// contexts, like those of most callers, allocate a channel, a timer and a
// further context when they are asked for Done. One timer for all requests of a
// driver, which asks their contexts for an error every PollEvery, allocates none
// of these, and a call still returns within 50 ms of its context's end.
//
// The zero value is ready. It has no goroutine, and its timer rests when
// nothing waits.
//
// Under mu, only the mutexes of the contexts are taken.
type Poller struct {
	// Look is called at each poll, without the mutex, if it is not nil. It does not block.
	Look func()

	mu     sync.Mutex
	active []*PollContext // the contexts of waiting requests, in no order
	spare  []*PollContext
	polled []polledCtx // kept for poll to reuse
	timer  *time.Timer
	armed  bool // the timer will fire
}

// PollEvery is the interval at which a context is asked for its error. A call
// has to return within 50 ms of its context's end.
const PollEvery = 20 * time.Millisecond

// maxSpare is the number of contexts that are kept for later requests.
const maxSpare = 64

// PollContext is a context whose Done closes within a PollEvery of the end of the
// request's context. It has no deadline: on a connection with a single caller
// the client would make it the connection's deadline, and so lose the
// connection with a late answer.
//
// No mutex is taken under mu.
type PollContext struct {
	done  chan struct{}
	index int    // in Poller.active
	turn  uint64 // number of its present request, since it is used again
	over  bool   // done is closed

	// Work that a client has begun with the context may outlast the request,
	// such as a dial to one address of several. It may ask the context while
	// the next request has it.
	mu  sync.Mutex
	ctx context.Context // written under Poller.mu, too
}

// set makes b the context of a request, or of none.
func (b *PollContext) set(ctx context.Context) {
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
}

func (b *PollContext) context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ctx
}

// Deadline returns no deadline.
func (b *PollContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done returns a channel that is closed soon after the request's context
// ended.
func (b *PollContext) Done() <-chan struct{} { return b.done }

// Err returns the error of the request's context.
func (b *PollContext) Err() error { return b.context().Err() }

// Value returns the value of the request's context.
func (b *PollContext) Value(key any) any { return b.context().Value(key) }

// polledCtx is a request as poll found it.
type polledCtx struct {
	b    *PollContext
	ctx  context.Context
	turn uint64
}

// Begin watches ctx until End.
func (o *Poller) Begin(ctx context.Context) *PollContext {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b *PollContext
	if last := len(o.spare) - 1; last >= 0 {
		b, o.spare = o.spare[last], o.spare[:last]
	} else {
		b = &PollContext{done: make(chan struct{})}
	}
	b.set(ctx)
	b.index = len(o.active)
	b.turn++
	o.active = append(o.active, b)
	if !o.armed {
		o.armed = true
		if o.timer == nil {
			o.timer = time.AfterFunc(PollEvery, o.poll)
		} else {
			o.timer.Reset(PollEvery)
		}
	}
	return b
}

// End stops watching a context. If its channel was closed, it is not used
// again; otherwise late users of it find a context that does not end.
func (o *Poller) End(b *PollContext) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.active) - 1
	moved := o.active[last]
	o.active[b.index], moved.index = moved, b.index
	o.active[last] = nil
	o.active = o.active[:last]
	if b.over {
		return
	}
	b.set(context.Background())
	if len(o.spare) < maxSpare {
		o.spare = append(o.spare, b)
	}
}

// poll runs when the timer fires. It asks the contexts without the mutex,
// because a context may be of any type, and may do anything when it is asked.
func (o *Poller) poll() {
	if o.Look != nil {
		o.Look()
	}
	o.mu.Lock()
	polled := o.polled[:0]
	for _, b := range o.active {
		polled = append(polled, polledCtx{b, b.ctx, b.turn})
	}
	o.mu.Unlock()
	ended := polled[:0]
	for _, s := range polled {
		if s.ctx.Err() != nil {
			ended = append(ended, s)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range ended {
		if b := s.b; b.turn == s.turn && b.index < len(o.active) && o.active[b.index] == b && !b.over {
			b.over = true
			close(b.done)
		}
	}
	clear(polled)
	o.polled = polled[:0]
	if o.armed = len(o.active) > 0; o.armed {
		o.timer.Reset(PollEvery)
	}
}
