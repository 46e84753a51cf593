package client

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/unanswered"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Detached makes the calls of a driver on a library that may ignore contexts:
// each waits for its answer on a goroutine of its own, which stays when the
// caller gives up. A server that does not answer gets no further requests while
// many are under way like that.
type Detached struct {
	life    Life
	poller  Poller
	givenUp unanswered.Requests
}

// NewDetached returns a Detached in a driver's life.
func NewDetached(l Life) *Detached { return &Detached{life: l} }

// answer is the result of a call, or the turn of a caller that has given up.
type answer struct {
	r    wire.Reply
	err  error
	turn int
}

// Call calls do and returns its result, or an error as soon as ctx or the life
// ends. The context of do ends then, too; it has no deadline.
func (d *Detached) Call(ctx context.Context, do func(context.Context) (wire.Reply, error)) (wire.Reply, error) {
	if Endless(ctx) {
		return do(ctx)
	}
	if d.givenUp.Full() {
		return wire.Reply{}, driver.Errorf(driver.Unavailable, "the server does not answer, and %d requests that were given up are under way", unanswered.Most)
	}
	b := d.poller.Begin(ctx)
	defer d.poller.End(b)
	ch := make(chan answer, 1) // of whichever ends first, the call or its caller's patience
	if !d.life.Begin(func() {
		r, err := do(b)
		if err == nil || wire.AnswerOf(err) != "" {
			d.givenUp.Answer()
		}
		select {
		case ch <- answer{r: r, err: err}:
		default:
			d.givenUp.End((<-ch).turn)
		}
	}) {
		return wire.Reply{}, ErrOver
	}
	select {
	case a := <-ch:
		return a.r, a.err
	case <-b.Done():
		if a, answered := d.giveUp(ch); answered {
			return a.r, a.err
		}
		return wire.Reply{}, Ended(ctx)
	case <-d.life.Done:
		return wire.Reply{}, ErrCut
	}
}

// giveUp counts a call as given up. If the call has ended meanwhile, giveUp
// returns its answer.
func (d *Detached) giveUp(ch chan answer) (a answer, answered bool) {
	turn := d.givenUp.GiveUp()
	select {
	case ch <- answer{turn: turn}:
		return answer{}, false
	default:
		d.givenUp.End(turn)
		return <-ch, true
	}
}
