package trace_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/sim"
	"github.com/holdfast-go/holdfast/internal/safety/trace"
	"github.com/holdfast-go/holdfast/memlock"
)

var _ sim.Witness = (*trace.Driver)(nil)

// coreEvents returns the events of what the core told its user.
func coreEvents(events []trace.Event) []trace.Event {
	return slices.DeleteFunc(events, func(e trace.Event) bool {
		return !slices.Contains([]trace.Kind{trace.LockDone, trace.Got, trace.Out, trace.Told, trace.HoldDone}, e.Kind)
	})
}

// TestRecorderNotesWhatTheUserIsTold checks the events of a hold that is unlocked and of
// one that an operator breaks, and that they name the hold, its ticket and its token.
func TestRecorderNotesWhatTheUserIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(365 * 24 * time.Hour) // the store's clock is low in the bubble's first year
		s := memlock.NewStore()
		r := trace.NewRecorder(3)
		d := r.Wrap(memlock.New(s))
		locks, err := holdfast.New(d, holdfast.WithObserver(d.Observer()))
		if err != nil {
			t.Fatal(err)
		}
		first, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d.Got(first)
		d.Out(first, first.Err())
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		second, err := locks.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d.Got(second)
		if err := d.Break(t.Context(), "n", second.Ticket()); err != nil {
			t.Fatal(err)
		}
		<-second.Context().Done()
		synctest.Wait() // HoldDone is called on a goroutine of its own
		d.Told(second, second.Err())
		d.Out(second, second.Err())
		if err := second.Unlock(); !errors.Is(err, holdfast.ErrLost) {
			t.Fatal(err)
		}
		if err := locks.Close(); err != nil {
			t.Fatal(err)
		}
		type told struct {
			kind trace.Kind
			hold int
			err  string
		}
		want := []told{
			{trace.LockDone, 1, ""}, {trace.Got, 1, ""}, {trace.Out, 1, ""}, {trace.HoldDone, 1, ""},
			{trace.LockDone, 2, ""}, {trace.Got, 2, ""}, {trace.HoldDone, 2, "lost"}, {trace.Told, 2, "lost"}, {trace.Out, 2, "lost"},
		}
		var is []told
		for _, e := range coreEvents(r.Events()) {
			is = append(is, told{e.Kind, e.Hold, e.Err})
			h := []*holdfast.Hold{first, second}[e.Hold-1]
			observed := e.Kind == trace.LockDone || e.Kind == trace.HoldDone
			if e.Token != h.Token() || e.Name != "n" || e.Client != 1 || !observed && e.ID != h.Ticket() {
				t.Errorf("%v is of token %d, ticket %s", e, h.Token(), h.Ticket())
			}
		}
		if !slices.Equal(is, want) {
			t.Errorf("the user was told %v, want %v", is, want)
		}
	})
}

// TestEndsOfWaitsAndClientsAreNoted checks that schedules have the pushes that reach a client,
// after they were sent, the calls that fail, and the clients that end, after they were closed.
func TestEndsOfWaitsAndClientsAreNoted(t *testing.T) {
	noted := map[trace.Kind]int{}
	for seed := uint64(1); seed < 10; seed++ {
		events, _ := play(t, sim.Plan(seed, false), memory, true)
		pushed, closed := map[string]bool{}, map[int]bool{}
		for _, e := range events {
			noted[e.Kind]++
			switch {
			case e.Kind == trace.Push:
				pushed[e.ID+e.State] = true
			case e.Kind == trace.Close:
				closed[e.Client] = true
			case e.Kind == trace.Heard && !pushed[e.ID+e.State], e.Kind == trace.Ended && !closed[e.Client], e.Kind == trace.Failed && e.Err == "":
				t.Errorf("%v comes too early, or without an error", e)
			}
		}
	}
	for _, kind := range []trace.Kind{trace.Heard, trace.Failed, trace.Ended} {
		if noted[kind] == 0 {
			t.Errorf("no %s is noted", kind)
		}
	}
}

// TestHeardAnswersAreNoted checks that an event has the times of a request whose answer
// reached its client, that one whose answer was lost has none, and that of a request that
// arrives twice the latter answer is heard.
func TestHeardAnswersAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(365 * 24 * time.Hour)
		r := trace.NewRecorder(3)
		d := r.Wrap(memlock.New(memlock.NewStore()))
		ticket := &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: time.Second}
		join := func(answered bool, times int) {
			ctx, heard := d.Sent(context.Background())
			for range times {
				time.Sleep(2 * time.Millisecond)
				if _, err := d.Join(ctx, ticket, true); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * time.Millisecond)
			if answered {
				heard()
			}
		}
		join(false, 1)
		join(true, 2)
		var is [][2]time.Duration
		for _, e := range r.Events() {
			is = append(is, [2]time.Duration{time.Duration(e.Sent), time.Duration(e.Heard)})
		}
		if want := [][2]time.Duration{{}, {}, {4 * time.Millisecond, 3 * time.Millisecond}}; !slices.Equal(is, want) {
			t.Errorf("requests were sent and answers heard at %v, want %v", is, want)
		}
		var text bytes.Buffer
		if err := trace.Module(&text, "Recorded", []*trace.Trace{{Name: "n", Events: r.Events()}}); err != nil {
			t.Fatal(err)
		}
		// The second call began 3 ms after the first event, its lease is 1 s, and the answer
		// came 7 ms later.
		if n := strings.Count(text.String(), ", <<>>, 0, {}, {}, {}, {}>>"); n != 2 || !strings.Contains(text.String(), ", <<3, 1000, 10>>, 0, {}, {}, {}, {}>>") {
			t.Errorf("%d events without an answer in\n%s", n, text.String())
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
