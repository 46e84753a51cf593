package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// observations checks the events of the Observer of one client: one LockDone
// for each call, one HoldDone for each hold, and the values of the contexts.
type observations struct {
	mu    sync.Mutex
	asked int // calls that do not nest
	calls []*observedCall
	bad   []string
}

// observedCall is the record of one call, from the events about it.
type observedCall struct {
	event holdfast.Event
	waits map[bool]int // LockWait, by whether it had an error
	dones int
	token uint64
	held  bool
	ends  int
}

// callKey and holdKey are the keys of an observedCall in the contexts that
// LockStart and LockDone return.
type (
	callKey struct{}
	holdKey struct{}
)

func (o *observations) fail(format string, args ...any) {
	o.bad = append(o.bad, "Observer: "+fmt.Sprintf(format, args...)+"\n")
}

// ask counts a call that does not nest.
func (o *observations) ask() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
}

// callOf returns the call whose LockStart, or LockDone, made ctx.
func (o *observations) callOf(ctx context.Context, key any, what string, e holdfast.Event) *observedCall {
	call, _ := ctx.Value(key).(*observedCall)
	switch {
	case call == nil:
		o.fail("%s of %v without the values of its call", what, e)
		return &observedCall{}
	case call.event != e:
		o.fail("%s of %v in a call of %v", what, e, call.event)
	}
	return call
}

func (o *observations) lockStart(ctx context.Context, e holdfast.LockStartInfo) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	call := &observedCall{event: e.Event, waits: make(map[bool]int)}
	o.calls = append(o.calls, call)
	return context.WithValue(ctx, callKey{}, call)
}

func (o *observations) lockWait(ctx context.Context, e holdfast.LockWaitInfo) {
	o.mu.Lock()
	defer o.mu.Unlock()
	call := o.callOf(ctx, callKey{}, "LockWait", e.Event)
	if call.waits[e.Err != nil]++; call.waits[e.Err != nil] > 1 || call.dones > 0 {
		o.fail("%v: LockWait %d, error %v, after %d LockDone", e.Event, call.waits[e.Err != nil], e.Err, call.dones)
	}
}

func (o *observations) lockDone(ctx context.Context, e holdfast.LockDoneInfo) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	call := o.callOf(ctx, callKey{}, "LockDone", e.Event)
	call.dones++
	call.held, call.token = e.Err == nil, e.Token
	if waited := len(call.waits) > 0; e.Contended != waited {
		o.fail("%v: Contended is %v, LockWait %v", e.Event, e.Contended, call.waits)
	}
	return context.WithValue(ctx, holdKey{}, call)
}

func (o *observations) holdDone(ctx context.Context, e holdfast.HoldDoneInfo) {
	o.mu.Lock()
	defer o.mu.Unlock()
	call := o.callOf(ctx, holdKey{}, "HoldDone", e.Event)
	if call.ends++; !call.held || call.token != e.Token || e.Held < 0 {
		o.fail("%+v ends a hold of token %d, held %v", e, call.token, call.held)
	}
}

// finish returns what is wrong when all clients have been closed for a while.
func (o *observations) finish(client int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) != o.asked {
		o.fail("client %d: %d LockStart of %d calls", client, len(o.calls), o.asked)
	}
	for _, call := range o.calls {
		ends := 0
		if call.held {
			ends = 1
		}
		if call.dones != 1 || call.ends != ends {
			o.fail("client %d, %v: %d LockDone, %d HoldDone of %d holds", client, call.event, call.dones, call.ends, ends)
		}
	}
	return o.bad
}

func (u *user) observer() *holdfast.Observer {
	return &holdfast.Observer{
		LockStart: u.seen.lockStart,
		LockWait: func(ctx context.Context, e holdfast.LockWaitInfo) {
			u.seen.lockWait(ctx, e)
			if e.Err != nil {
				u.r.recordDisturbance(u.client)
			} else if n := u.waiting.Load(); e.Name == lockNames[0].name && n > 0 {
				u.r.add(u.client, checker.Event{What: checker.Wait, N: n})
			}
		},
		LockDone: u.seen.lockDone,
		HoldDone: func(ctx context.Context, e holdfast.HoldDoneInfo) {
			u.seen.holdDone(ctx, e)
			if lost, ok := errors.AsType[*holdfast.LostError](e.Err); ok {
				u.addLateLoss(ctx, lost)
				u.r.add(u.client, checker.Event{What: checker.Notice, Name: e.Name, Token: e.Token})
			}
		},
		BackgroundError: func(context.Context, holdfast.BackgroundErrorInfo) { u.r.recordDisturbance(u.client) },
	}
}
