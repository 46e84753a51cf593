package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/answer"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// Ending is the end of one client, while functions of Do run under its locks.
type Ending struct {
	At    time.Duration
	Close bool // the client is closed by Close, else by Shutdown
}

// String returns the ending in a few words.
func (e Ending) String() string {
	how := "Shutdown"
	if e.Close {
		how = "Close"
	}
	return fmt.Sprintf("%s at %.6fs", how, e.At.Seconds())
}

// PlanClosing returns the schedule of a seed in which all clients work in functions
// of Do, and all but the last one are closed at random instants, so that others come
// to hold what their functions held.
func PlanClosing(seed uint64) Schedule {
	s := Plan(seed, false)
	rnd := rand.New(rand.NewPCG(seed, 2))
	s.Calls += 4
	for range s.Clients - 1 {
		s.Endings = append(s.Endings, Ending{
			At:    time.Duration(rnd.Float64() * 5 * float64(s.TTL)),
			Close: rnd.IntN(2) == 0,
		})
	}
	return s
}

// cleanUpTime returns the time for which a function cleans up after it was asked to
// stop. Close waits for functions for a third of the TTL, at most 5 s; Shutdown waits
// without a bound.
func (s Schedule) cleanUpTime(rnd *rand.Rand, client int) time.Duration {
	most := 3 * s.TTL
	if client < len(s.Endings) && s.Endings[client].Close {
		most = min(s.TTL/3, 5*time.Second) * 9 / 10
	}
	return 1 + time.Duration(rnd.Int64N(int64(most)))
}

// playEnding closes a client at its instant.
func (u *user) playEnding(e Ending, began func()) {
	time.Sleep(e.At - u.r.since())
	if began != nil {
		began()
	}
	if e.Close {
		_ = u.locks.Close() // Play asks for its result
		return
	}
	_ = u.locks.Shutdown(context.Background())
}

// doTurn makes one call of Do. It reports whether the client takes more calls.
func (u *user) doTurn(rnd *rand.Rand, g int) bool {
	e := u.nextAsk(rnd, g)
	ctx, stop := context.WithTimeout(u.ctx, endless*u.r.TTL)
	defer stop()
	if e.Alone {
		u.waiting.Store(e.N)
	}
	u.r.add(u.client, e)
	u.r.count()
	u.seen.ask()
	var told chan struct{} // closed when the end of the function's context is in the history
	call := &functionCall{n: e.N}
	err := do(context.WithValue(ctx, functionKey{}, call), u.locks, lockName{e.Name, e.Limit}, e.Units, func(ctx context.Context) error {
		told = make(chan struct{})
		u.function(ctx, rnd, e, call, told)
		return nil
	}, u.options(lockName{e.Name, e.Limit})...)
	if told == nil {
		u.r.add(u.client, checker.Event{What: checker.Failed, G: g, N: e.N, Err: answer.Class(err), Text: fmt.Sprint(err)})
		return !errors.Is(err, holdfast.ErrClosed)
	}
	<-told
	done := checker.Event{What: checker.Done, N: e.N}
	if err != nil {
		done.Err, done.Text = answer.Class(err), err.Error()
	}
	u.r.add(u.client, done)
	return true
}

// functionCall is a call of Do, functionKey its key in the contexts of Observers.
type (
	functionCall struct {
		n       int64
		stopped atomic.Bool // the function was asked to stop
	}
	functionKey struct{}
)

// addLateLoss adds the loss of a hold whose function had been asked to stop before:
// the function's context had ended then, and only the Observer is told.
func (u *user) addLateLoss(ctx context.Context, lost *holdfast.LostError) {
	if call, ok := ctx.Value(functionKey{}).(*functionCall); ok && call.stopped.Load() {
		u.r.add(u.client, checker.Event{What: checker.Told, N: call.n, Token: lost.Token, Text: string(lost.Reason), End: u.r.now()})
	}
}

// function is the function of Do. It works until it is done or its context ends, and
// then cleans up.
func (u *user) function(ctx context.Context, rnd *rand.Rand, ask checker.Event, call *functionCall, told chan<- struct{}) {
	u.r.add(u.client, checker.Event{What: checker.Got, G: ask.G, N: ask.N, Token: holdfast.Token(ctx, ask.Name)})
	context.AfterFunc(ctx, func() {
		defer close(told)
		cause := context.Cause(ctx)
		lost, ok := errors.AsType[*holdfast.LostError](cause)
		switch {
		case ok:
			u.r.add(u.client, checker.Event{What: checker.Told, N: ask.N, Token: lost.Token, Text: string(lost.Reason), End: u.r.now()})
		case errors.Is(cause, holdfast.ErrShutdown), errors.Is(cause, holdfast.ErrClosed):
			u.r.add(u.client, checker.Event{What: checker.Stop, N: ask.N, Err: answer.Class(holdfast.ErrClosed)})
			call.stopped.Store(true)
			u.r.stopped.Add(1)
		}
	})
	long := u.randomTime(rnd)
	if rnd.IntN(3) == 0 { // often until the client closes
		long = 4 * u.r.TTL
	}
	work := time.NewTimer(long)
	defer work.Stop()
	select {
	case <-work.C:
	case <-ctx.Done():
		time.Sleep(u.r.cleanUpTime(rnd, u.client))
	}
	out := checker.Event{What: checker.Out, N: ask.N, End: u.r.now()}
	if errors.Is(context.Cause(ctx), holdfast.ErrLost) {
		out.Err, out.End = checker.ErrLost, 0
	}
	u.r.add(u.client, out)
}

// do runs fn under units of a name.
func do(ctx context.Context, l *holdfast.Client, n lockName, units int64, fn func(context.Context) error, with ...holdfast.Option) error {
	switch {
	case n.limit == 1:
		return l.Mutex(n.name, with...).Do(ctx, fn)
	case n.limit == driver.RWLimit && units == 1:
		return l.RWMutex(n.name, with...).RDo(ctx, fn)
	case n.limit == driver.RWLimit:
		return l.RWMutex(n.name, with...).Do(ctx, fn)
	}
	return l.Semaphore(n.name, int(n.limit), with...).Do(ctx, int(units), fn)
}
