package fence_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/internal/testkit/paused"
)

func tok(v uint64, owner string) fence.Token { return fence.Token{Value: v, Owner: owner} }

func reader(v uint64) fence.Token { return fence.Token{Value: v, Shared: true} }

// TestCheck checks the tokens that a Guard admits and refuses.
//
// Covers: F20.
func TestCheck(t *testing.T) {
	type step struct {
		t    fence.Token
		want error
	}
	for name, steps := range map[string][]step{
		"lower is refused":              {{tok(5, ""), nil}, {tok(4, ""), fence.ErrStale}, {tok(5, ""), nil}},
		"zero is no token":              {{tok(0, ""), fence.ErrNoToken}, {tok(0, "a"), fence.ErrNoToken}},
		"one number of two owners":      {{tok(5, "a"), nil}, {tok(5, "b"), fence.ErrStale}, {tok(5, ""), fence.ErrStale}, {tok(5, "a"), nil}, {tok(6, "b"), nil}},
		"a reader never raises":         {{tok(5, ""), nil}, {reader(9), nil}, {tok(7, ""), nil}, {reader(9), nil}},
		"a reader before a writer":      {{reader(3), nil}, {tok(5, ""), nil}, {reader(3), fence.ErrStale}},
		"a reader of no owner's number": {{tok(5, "a"), nil}, {reader(5), fence.ErrStale}},
		"the greatest numbers":          {{tok(1<<64-2, ""), nil}, {tok(1<<64-1, ""), nil}, {tok(1<<64-2, ""), fence.ErrStale}},
		"semaphores pass in any order":  {{reader(9), nil}, {reader(3), nil}, {reader(9), nil}},
		"a refusal changes nothing":     {{tok(5, "a"), nil}, {tok(4, "b"), fence.ErrStale}, {tok(5, "b"), fence.ErrStale}, {tok(5, "a"), nil}},
	} {
		t.Run(name, func(t *testing.T) {
			var one fence.Guard
			var many fence.Guards
			for i, s := range steps {
				if err := one.Check(s.t); !errors.Is(err, s.want) {
					t.Errorf("step %d: Check(%v) = %v, want %v", i, s.t, err, s.want)
				}
				if err := many.Check("x", s.t); !errors.Is(err, s.want) {
					t.Errorf("step %d: Check(x, %v) = %v, want %v", i, s.t, err, s.want)
				}
				called := false
				err := one.Do(t.Context(), s.t, func() error { called = true; return nil })
				if !errors.Is(err, s.want) || called != (s.want == nil) {
					t.Errorf("step %d: Do(%v) = %v, called %t, want %v", i, s.t, err, called, s.want)
				}
			}
		})
	}
}

func TestErrorsNameTheResource(t *testing.T) {
	var gs fence.Guards
	_ = gs.Check("stock", tok(7, "a"))
	err := gs.Check("stock", tok(5, ""))
	if want := `fence: token 5 for "stock" came after 7 of "a"`; err == nil || err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
	err = gs.Do(t.Context(), "stock", tok(7, "b"), nil)
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || !stale.Twin() || stale.Name != "stock" || stale.Highest != tok(7, "a") {
		t.Errorf("an equal number of another owner: %#v", err)
	}
	if want := `fence: token 7 of "b" for "stock" was already used as 7 of "a"`; err.Error() != want {
		t.Errorf("it says %q, want %q", err, want)
	}
	if err := gs.Check("other", tok(1, "")); err != nil {
		t.Errorf("another name has the guard of stock: %v", err)
	}
	gs.Forget("stock")
	if err := gs.Check("stock", tok(1, "")); err != nil {
		t.Errorf("what is forgotten is remembered: %v", err)
	}
}

// TestDoExcludesOtherWriters checks that Do runs a write alone, and readers
// together.
func TestDoExcludesOtherWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Guard
		var inside, most atomic.Int32
		work := func() error {
			n := inside.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			time.Sleep(time.Second)
			inside.Add(-1)
			return nil
		}
		run := func(ts ...fence.Token) (took time.Duration) {
			began, left := time.Now(), make(chan error)
			for _, x := range ts {
				go func() { left <- g.Do(t.Context(), x, work) }()
			}
			for range ts {
				if err := <-left; err != nil {
					t.Error(err)
				}
			}
			return time.Since(began)
		}
		if took := run(tok(5, ""), tok(5, ""), tok(5, "")); most.Load() != 1 || took != 3*time.Second {
			t.Errorf("%d writers were inside at once, for %v", most.Load(), took)
		}
		if took := run(reader(9), reader(9), reader(9)); most.Load() != 3 || took != time.Second {
			t.Errorf("%d readers were inside at once, for %v", most.Load(), took)
		}
	})
}

// TestDoJudgesAfterTheWait checks that a token which waits for a writer is
// checked again after the wait.
func TestDoJudgesAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Guard
		said := make(chan string, 3)
		do := func(v uint64) {
			err := g.Do(t.Context(), tok(v, ""), func() error { time.Sleep(time.Second); said <- "wrote"; return nil })
			if errors.Is(err, fence.ErrStale) {
				said <- "refused"
			}
		}
		go do(5)
		synctest.Wait()
		go do(6)
		go do(7)
		synctest.Wait()
		if err := g.Do(t.Context(), tok(4, ""), nil); !errors.Is(err, fence.ErrStale) {
			t.Errorf("a low token during a write: %v", err)
		}
		time.Sleep(5 * time.Second)
		got := []string{<-said, <-said, <-said}
		if h := g.Highest(); h.Value != 7 || got[0] != "wrote" {
			t.Errorf("the highest is %v, they said %v", h, got)
		}
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Guard
		go g.Do(t.Context(), tok(5, ""), func() error { time.Sleep(time.Hour); return nil })
		synctest.Wait()
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, enough)
		defer cancel()
		if err := g.Do(ctx, tok(6, ""), nil); err != enough {
			t.Errorf("it ended with %v, want %v", err, enough)
		}
		if h := g.Highest(); h.Value != 5 {
			t.Errorf("who never got in has raised the guard to %v", h)
		}
		time.Sleep(time.Hour)
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		if err := g.Do(ctx, tok(6, ""), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestDoEndsWithAPanic(t *testing.T) {
	var g fence.Guard
	func() {
		defer func() { _ = recover() }()
		_ = g.Do(t.Context(), tok(5, ""), func() error { panic("no") })
	}()
	mine := errors.New("mine")
	if err := g.Do(t.Context(), tok(5, ""), func() error { return mine }); err != mine {
		t.Errorf("after a panic: %v", err)
	}
}

// object is an object of an object store. A put has the condition that the
// version is the one that was read: its ETag or generation.
type object struct {
	version int
	token   fence.Token // in the metadata
	data    string
}

var errPrecondition = errors.New("412 Precondition Failed")

func (o *object) put(ifMatch int, t fence.Token, data string) error {
	if o.version != ifMatch {
		return errPrecondition
	}
	*o = object{o.version + 1, t, data}
	return nil
}

// guarded is a put as docs/fencing.md describes it, by a client that has read
// the object.
func (o *object) guarded(read object, t fence.Token, data string) error {
	for {
		if err := fence.Admit(read.token, t); err != nil {
			return err
		}
		if err := o.put(read.version, t, data); !errors.Is(err, errPrecondition) {
			return err
		}
		read = *o
	}
}

// TestF12_PausedHolder stops a holder past its lease. Another process takes
// over and writes, and the first one wakes up and writes as well. It read the
// object of the object store before it was stopped.
func TestF12_PausedHolder(t *testing.T) {
	var guard fence.Guard
	var bare, stored object
	read := stored
	h := paused.Start(t, "")
	unguarded, guarded := "", ""
	write := func(t fence.Token, data string) error {
		unguarded = data
		return guard.Do(context.Background(), t, func() error { guarded = data; return nil })
	}
	if err := errors.Join(write(h.Next, "new data"), bare.put(0, h.Next, "new data"), stored.guarded(stored, h.Next, "new data")); err != nil {
		t.Fatal(err)
	}
	late, _ := h.Wake()
	if err := write(h.Token, late); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the late write: %v", err)
	}
	if err := stored.guarded(read, h.Token, late); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the late put: %v", err)
	}
	// A condition alone, checked by a client that reads again, lets the write
	// pass.
	if err := bare.put(bare.version, h.Token, late); err != nil {
		t.Error(err)
	}
	if unguarded != "old data" || bare.data != "old data" {
		t.Errorf("without the guard there is %q, and %q in the object: the test has not shown the damage", unguarded, bare.data)
	}
	if guarded != "new data" || stored.data != "new data" {
		t.Errorf("with the guard there is %q, and %q in the object", guarded, stored.data)
	}
}
