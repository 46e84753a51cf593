package redislock

import (
	"context"
	"sync"
	"time"
)

// lookout watches the contexts of the requests that wait together. The core's
// contexts, like those of most callers, make a channel, a timer and a context
// more when they are asked for Done. One timer for all requests of a driver,
// which looks at them every glance, costs none of that, and a call still
// returns within 50 ms of its context's end.
//
// The zero value is ready. It has no goroutine, and its timer rests when
// nothing waits.
type lookout struct {
	mu    sync.Mutex
	under []*bounded // what waits, in no order
	spare []*bounded
	seen  []sight // room for look
	timer *time.Timer
	awake bool // the timer will fire
}

// maxSpare is how many contexts are kept for requests to come.
const maxSpare = 64

// bounded is a request's context as those have it who wait: Done is closed
// within a glance of its end. It has no deadline, because the client would make
// that the connection's where a connection has a single caller, and so lose the
// connection with an answer that is late.
type bounded struct {
	done chan struct{}
	at   int    // place in lookout.under
	turn uint64 // which of its requests this is
	over bool   // done is closed

	// What a client has begun with it may outlast the request, such as a dial
	// to one address of several, and ask it while the next request has it.
	mu  sync.Mutex
	ctx context.Context // written with lookout.mu, too
}

// set makes b the context of a request, or of none.
func (b *bounded) set(ctx context.Context) {
	b.mu.Lock()
	b.ctx = ctx
	b.mu.Unlock()
}

func (b *bounded) context() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ctx
}

// Deadline says that there is none.
func (b *bounded) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed soon after the request's context ended.
func (b *bounded) Done() <-chan struct{} { return b.done }

// Err is that of the request's context.
func (b *bounded) Err() error { return b.context().Err() }

// Value is that of the request's context.
func (b *bounded) Value(key any) any { return b.context().Value(key) }

// sight is a request as look found it.
type sight struct {
	b    *bounded
	ctx  context.Context
	turn uint64
}

// begin watches ctx until end.
func (o *lookout) begin(ctx context.Context) *bounded {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b *bounded
	if last := len(o.spare) - 1; last >= 0 {
		b, o.spare = o.spare[last], o.spare[:last]
	} else {
		b = &bounded{done: make(chan struct{})}
	}
	b.set(ctx)
	b.at = len(o.under)
	b.turn++
	o.under = append(o.under, b)
	if !o.awake {
		o.awake = true
		if o.timer == nil {
			o.timer = time.AfterFunc(glance, o.look)
		} else {
			o.timer.Reset(glance)
		}
	}
	return b
}

// end stops watching. One whose channel was closed is not used again; whoever
// still asks one that was not finds a context that does not end.
func (o *lookout) end(b *bounded) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.under) - 1
	moved := o.under[last]
	o.under[b.at], moved.at = moved, b.at
	o.under[last] = nil
	o.under = o.under[:last]
	if b.over {
		return
	}
	b.set(context.Background())
	if len(o.spare) < maxSpare {
		o.spare = append(o.spare, b)
	}
}

// look runs when the timer fires. A context may be anybody's, and what it does
// when it is asked, too: it is asked without the mutex.
func (o *lookout) look() {
	o.mu.Lock()
	seen := o.seen[:0]
	for _, b := range o.under {
		seen = append(seen, sight{b, b.ctx, b.turn})
	}
	o.mu.Unlock()
	ended := seen[:0]
	for _, s := range seen {
		if s.ctx.Err() != nil {
			ended = append(ended, s)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range ended {
		if b := s.b; b.turn == s.turn && b.at < len(o.under) && o.under[b.at] == b && !b.over {
			b.over = true
			close(b.done)
		}
	}
	clear(seen)
	o.seen = seen[:0]
	if o.awake = len(o.under) > 0; o.awake {
		o.timer.Reset(glance)
	}
}
