// Command leader has one leader and one standby, by Lead. Both ask for the same
// lock, and its holder leads; the other waits in the queue and costs nothing. The
// context of a term ends with it, and the token is the number of the term:
// followers refuse orders of an earlier term.
//
//	go run ./examples/leader
//	go run ./examples/leader -store redis://localhost:6379
//
// The leader steps down, and the standby leads at once. Then an operator takes
// the lock from the new leader, which learns of it and becomes the standby.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/examples/internal/program"
)

const name = "examples/leader"

func main() { program.Main(run) }

// term is one leadership, as its leader reports it.
type term struct {
	leader   string
	token    uint64
	stepDown context.CancelFunc
}

// campaign leads whenever it can, until ctx ends.
func campaign(ctx context.Context, locks *holdfast.Client, who string, terms chan<- term) error {
	for ctx.Err() == nil {
		err := locks.Lead(ctx, name, func(ctx context.Context) error { // the standby waits here
			leading, stepDown := context.WithCancel(ctx)
			defer stepDown()
			terms <- term{who, holdfast.Token(ctx, name), stepDown}
			<-leading.Done() // the leader's work, which has to end when leading does
			if errors.Is(context.Cause(ctx), holdfast.ErrLost) {
				fmt.Println("a leader was told that it has lost the lock, and is a standby again")
			} else if ctx.Err() == nil {
				fmt.Println("a leader has stepped down, and is a standby again")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, store string) error {
	ctx, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	terms, ended := make(chan term, 10), make(chan error, 2)
	var operator *holdfast.Client
	for _, who := range []string{"ann", "bob"} {
		locks, err := anylock.Open(ctx, store, holdfast.WithTTL(5*time.Second), holdfast.WithNote(who))
		if err != nil {
			return err
		}
		defer locks.Close()
		operator = locks
		go func() { ended <- campaign(ctx, locks, who, terms) }()
	}

	var last term
	for nr := 1; nr <= 3; nr++ {
		var now term
		select {
		case now = <-terms:
		case err := <-ended:
			return errors.Join(err, errors.New("nobody leads any more"))
		}
		if now.leader == last.leader || now.token <= last.token {
			return fmt.Errorf("%s leads with token %d, after %s with %d", now.leader, now.token, last.leader, last.token)
		}
		last = now
		line, err := bothInLine(ctx, operator, terms)
		if err != nil {
			return err
		}
		fmt.Printf("term %d: one leads, with a later token than before, and %d stands by\n", nr, len(line.Waiters))
		switch nr {
		case 1:
			now.stepDown()
		case 2:
			if err := operator.Break(ctx, name, line.Holders[0].ID); err != nil {
				return err
			}
		}
	}
	end()
	return errors.Join(<-ended, <-ended)
}

// bothInLine looks at the line until there are a leader and a standby in it.
func bothInLine(ctx context.Context, locks *holdfast.Client, terms <-chan term) (holdfast.LockInfo, error) {
	for {
		if len(terms) > 0 {
			return holdfast.LockInfo{}, errors.New("two lead at the same time")
		}
		line, err := locks.Inspect(ctx, name)
		if err != nil || len(line.Holders) == 1 && len(line.Waiters) == 1 {
			return line, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
