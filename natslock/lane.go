package natslock

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// lane holds the calls about one queue that wait for the requests under way.
// Guarded by the driver's mutex. One goroutine works on it as long as it has
// calls.
type lane struct {
	key, name string
	waiting   []*op
}

// op is one call about one queue.
type op struct {
	d    *Driver
	ctx  context.Context
	key  string
	do   func(*request) (any, error) // may be called several times, once after the other
	done chan struct{}               // closed after the answer is there

	answer any
	err    error
}

// request hands a call to the lane of its name. The caller waits for its answer
// with wait.
func (d *Driver) request(ctx context.Context, name string, do func(*request) (any, error)) *op {
	o := &op{d: d, ctx: ctx, key: queueKey(name), do: do, done: make(chan struct{})}
	if o.err = driver.Before(ctx); o.err != nil {
		close(o.done)
		return o
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		o.err = driver.ErrClosed
		close(o.done)
		return o
	}
	if l := d.lanes[o.key]; l != nil {
		l.waiting = append(l.waiting, o)
		return o
	}
	l := &lane{key: o.key, name: name, waiting: []*op{o}}
	d.lanes[o.key] = l
	d.work.Go(func() { d.run(l) })
	return o
}

// wait returns the answer, or an error at the end of the call's context, after
// which the outcome is unknown.
func (o *op) wait() (any, error) {
	select {
	case <-o.done:
		return o.answer, o.err
	case <-o.ctx.Done():
		return nil, driver.Wrap(driver.Unknown, context.Cause(o.ctx))
	}
}

func (o *op) end(answer any, err error) {
	o.answer, o.err = answer, err
	close(o.done)
}

// run works on a lane until it has no calls any more.
func (d *Driver) run(l *lane) {
	for {
		d.mu.Lock()
		ops := l.waiting
		l.waiting = nil
		if len(ops) == 0 {
			delete(d.lanes, l.key)
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		d.batch(l, ops)
	}
}

// batch carries the calls out in one request, and ends them all. The request ends
// early when the contexts of all calls have ended.
func (d *Driver) batch(l *lane, ops []*op) {
	ctx, cancel := context.WithCancelCause(d.ctx)
	defer cancel(nil)
	var live atomic.Int64
	live.Store(int64(len(ops)))
	for _, o := range ops {
		stop := context.AfterFunc(o.ctx, func() {
			if live.Add(-1) == 0 {
				cancel(context.Cause(o.ctx))
			}
		})
		defer stop()
	}
	pause := backoff.Backoff{First: time.Millisecond, Last: 32 * time.Millisecond, Jitter: true}
	for {
		conflict, err := d.attempt(ctx, l, ops)
		if !conflict && err == nil {
			return
		}
		if conflict && !pause.Wait(ctx) {
			err = driver.Wrap(driver.Unknown, context.Cause(ctx))
		}
		if err == nil {
			continue
		}
		if d.ctx.Err() != nil {
			err = driver.Wrap(driver.Unknown, driver.ErrClosed)
		}
		for _, o := range ops {
			o.end(nil, err)
		}
		return
	}
}

// attempt reads the record, carries the calls out on it, and writes it. Without a
// conflict or an error all calls have ended.
func (d *Driver) attempt(ctx context.Context, l *lane, ops []*op) (conflict bool, err error) {
	e, now, err := d.read(ctx, l.key)
	if err != nil {
		return false, err
	}
	r, answers, err := d.apply(l, ops, e, now)
	if err != nil {
		return false, err
	}
	if !r.changed {
		endAll(ops, answers)
		return false, nil
	}
	data, err := r.q.encode()
	if err != nil {
		return false, err
	}
	if limit := d.bucket.maxRecord(); len(data) > limit {
		if len(ops) > 1 { // some may still find room
			for one := range slices.Chunk(ops, 1) {
				d.batch(l, one)
			}
			return false, nil
		}
		if len(data) > len(e.data) {
			return false, driver.Errorf(driver.Refused, "queue is full: its record would have %d bytes; the maximum is %d (the server's max_payload)", len(data), limit)
		}
	}
	if conflict, err = d.bucket.write(ctx, l.key, data, e.revision, r.q.keepFor(now.UnixNano())); conflict || err != nil {
		return conflict, err
	}
	endAll(ops, answers)
	d.pushes.send(r.pushes)
	return false, nil
}

type answer struct {
	value any
	err   error
}

func endAll(ops []*op, answers []answer) {
	for i, o := range ops {
		o.end(answers[i].value, answers[i].err)
	}
}

// apply carries the calls out on the record that was read. A call whose context
// has ended is left out: nobody waits for its answer.
func (d *Driver) apply(l *lane, ops []*op, e entry, now time.Time) (*request, []answer, error) {
	var q *record
	if e.data != nil {
		var err error
		if q, err = decode(l.key, l.name, e.data); err != nil {
			return nil, nil, err
		}
	}
	r := newRequest(q, l.name, now.UnixNano())
	answers := make([]answer, len(ops))
	for i, o := range ops {
		if err := o.ctx.Err(); err != nil {
			answers[i].err = driver.Wrap(driver.Unknown, context.Cause(o.ctx))
			continue
		}
		r.steps, r.drops = 0, 0
		answers[i].value, answers[i].err = o.do(r)
	}
	return r, answers, nil
}
