package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// breakHolder takes the lock from its holder, as an operator does.
func breakHolder(t *testing.T, c *holdfast.Client, name string) {
	t.Helper()
	l, err := c.Inspect(bg, name)
	if err != nil || len(l.Holders) != 1 {
		t.Fatalf("Inspect: %+v, %v", l, err)
	}
	wantErr(t, c.Break(bg, name, l.Holders[0].ID), nil)
}

// TestLeadRunsOncePerTerm checks that Lead runs its function once in each term,
// in one client, with a token that grows, and that the standby leads when a term
// is lost.
func TestLeadRunsOncePerTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var leading atomic.Int32
		var mu sync.Mutex
		var tokens []uint64
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error, 2)
		for range 2 {
			c := client(t, memlock.New(s))
			go func() {
				done <- c.Lead(ctx, "a", func(ctx context.Context) error {
					leading.Add(1)
					mu.Lock()
					tokens = append(tokens, holdfast.Token(ctx, "a"))
					mu.Unlock()
					<-ctx.Done()
					leading.Add(-1)
					return ctx.Err()
				})
			}()
		}
		operator := client(t, memlock.New(s))
		const terms = 10
		for range terms {
			time.Sleep(time.Minute)
			if n := leading.Load(); n != 1 {
				t.Fatalf("%d lead", n)
			}
			if n := tickets(t, operator, "a"); n != 2 {
				t.Errorf("%d tickets, want a leader and a standby", n)
			}
			breakHolder(t, operator, "a")
		}
		time.Sleep(time.Minute)
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("Lead: %v", err)
			}
		}
		if len(tokens) != terms+1 {
			t.Errorf("%d terms, want %d", len(tokens), terms+1)
		}
		for i := 1; i < len(tokens); i++ {
			if tokens[i] <= tokens[i-1] {
				t.Errorf("token %d after %d", tokens[i], tokens[i-1])
			}
		}
		settle()
		if n := tickets(t, operator, "a"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

// TestLeadReturns checks what Lead returns when its function returns, and when
// ctx ends, in a valid term and in a lost one.
func TestLeadReturns(t *testing.T) {
	oops, cause := errors.New("oops"), errors.New("stepped down")
	for name, x := range map[string]struct {
		end  func(c *holdfast.Client, cancel context.CancelCauseFunc)
		fn   func(ctx context.Context) error
		want []error // nil: Lead returns nil
		more bool    // Lead runs the function again
	}{
		"nil in a valid term":             {fn: func(context.Context) error { return nil }},
		"an error in a valid term":        {fn: func(context.Context) error { return oops }, want: []error{oops}},
		"the context's error, of its own": {fn: func(context.Context) error { return context.Canceled }, want: []error{context.Canceled}},
		"nil after ctx":                   {end: func(_ *holdfast.Client, cancel context.CancelCauseFunc) { cancel(nil) }, fn: func(context.Context) error { return nil }},
		"ctx's error after ctx":           {end: func(_ *holdfast.Client, cancel context.CancelCauseFunc) { cancel(nil) }, fn: func(ctx context.Context) error { return ctx.Err() }},
		"ctx's cause after ctx":           {end: func(_ *holdfast.Client, cancel context.CancelCauseFunc) { cancel(cause) }, fn: context.Cause},
		"an error after ctx":              {end: func(_ *holdfast.Client, cancel context.CancelCauseFunc) { cancel(cause) }, fn: func(context.Context) error { return oops }, want: []error{oops}},
		"nil in a lost term":              {end: func(c *holdfast.Client, _ context.CancelCauseFunc) { breakIt(c) }, fn: func(context.Context) error { return nil }, more: true},
		"an error in a lost term":         {end: func(c *holdfast.Client, _ context.CancelCauseFunc) { breakIt(c) }, fn: func(context.Context) error { return oops }, more: true},
		"a lost term, and ctx":            {end: func(c *holdfast.Client, cancel context.CancelCauseFunc) { breakIt(c); synctest.Wait(); cancel(nil) }, fn: func(context.Context) error { time.Sleep(time.Second); return oops }},
		"nil after Shutdown":              {end: func(c *holdfast.Client, _ context.CancelCauseFunc) { go c.Shutdown(bg) }, fn: func(context.Context) error { return nil }},
		"an error after Shutdown":         {end: func(c *holdfast.Client, _ context.CancelCauseFunc) { go c.Shutdown(bg) }, fn: func(context.Context) error { return oops }, want: []error{oops, holdfast.ErrShutdown}},
		"the cause after Shutdown":        {end: func(c *holdfast.Client, _ context.CancelCauseFunc) { go c.Shutdown(bg) }, fn: context.Cause, want: []error{holdfast.ErrShutdown}},
		"nil, long after Close":           {end: func(c *holdfast.Client, _ context.CancelCauseFunc) { go c.Close() }, fn: func(context.Context) error { time.Sleep(ttl); return nil }, want: []error{holdfast.ErrClosed}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := client(t, memlock.New(memlock.NewStore()))
				ctx, cancel := context.WithCancelCause(bg)
				defer cancel(nil)
				terms, done := make(chan bool, 2), make(chan error, 1)
				var runs atomic.Int32
				go func() {
					done <- c.Lead(ctx, "a", func(ctx context.Context) error {
						if runs.Add(1) > 1 {
							return nil
						}
						terms <- true
						if x.end != nil {
							<-ctx.Done()
						}
						return x.fn(ctx)
					})
				}()
				<-terms
				if x.end != nil {
					x.end(c, cancel)
				}
				err := <-done
				if x.want == nil && err != nil {
					t.Errorf("Lead: %v", err)
				}
				for _, want := range x.want {
					wantErr(t, err, want)
				}
				if got := runs.Load() > 1; got != x.more {
					t.Errorf("the function ran again: %t, want %t", got, x.more)
				}
			})
		})
	}
}

// breakIt breaks the holder of "a".
func breakIt(c *holdfast.Client) {
	l, err := c.Inspect(bg, "a")
	if err == nil {
		_ = c.Break(bg, "a", l.Holders[0].ID)
	}
}

// TestLeadReleasesWhenTheFunctionReturns checks that the standby leads when the
// function has returned, however long that takes after the end of ctx, and that
// a panic releases the lock too.
func TestLeadReleasesWhenTheFunctionReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		ctx, cancel := context.WithCancel(bg)
		var returned time.Time
		go func() {
			_ = c.Lead(ctx, "a", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(3 * ttl)
				returned = time.Now()
				return nil
			})
		}()
		synctest.Wait()
		entered := enterAfter(t, lockKinds["Mutex"], other)
		cancel()
		if at := entered(); at.Before(returned) {
			t.Errorf("the standby leads %v before the function has returned", returned.Sub(at))
		}
		func() {
			defer func() { _ = recover() }()
			_ = c.Lead(bg, "a", func(context.Context) error { panic("oops") })
		}()
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
	})
}

// TestLeadOutlastsAnOutage checks that Lead campaigns again while the store is
// unavailable, at growing intervals of 0.1 to 10 s, tells the Observer each time,
// and leads when the store is back.
func TestLeadOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		var mu sync.Mutex
		var failed []time.Time
		c := client(t, d, holdfast.WithObserver(&holdfast.Observer{BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) {
			if failure, ok := errors.AsType[*holdfast.StoreError](e.Err); ok && failure.Op == "acquire" && e.Op == "campaign" && e.Name == "a" {
				mu.Lock()
				failed = append(failed, time.Now())
				mu.Unlock()
			}
		}}))
		var begun []time.Time
		d.set(func(d *hooked) {
			d.join = func(context.Context, *driver.Ticket, joinFunc) (driver.Status, error) {
				mu.Lock()
				defer mu.Unlock()
				if len(failed) == len(begun) {
					begun = append(begun, time.Now())
				}
				return driver.Status{}, driver.Errorf(driver.Unavailable, "connection refused")
			}
			d.look = func(context.Context, lookFunc) (driver.Queue, error) {
				return driver.Queue{}, driver.Errorf(driver.Unavailable, "connection refused")
			}
		})
		ctx, cancel := context.WithCancel(bg)
		done, led := make(chan error, 1), make(chan bool, 1)
		go func() {
			done <- c.Lead(ctx, "a", func(ctx context.Context) error { led <- true; <-ctx.Done(); return nil })
		}()
		time.Sleep(5 * time.Minute)
		mu.Lock()
		var pauses []time.Duration
		for i := 1; i < len(begun); i++ {
			pauses = append(pauses, begun[i].Sub(failed[i-1]))
		}
		mu.Unlock()
		if len(pauses) < 10 {
			t.Fatalf("%d pauses: %v", len(pauses), pauses)
		}
		different := 0
		for i, p := range pauses {
			if p < 100*time.Millisecond || p > 10*time.Second || i < 5 && p < 100*time.Millisecond<<i || i > 8 && p < 5*time.Second {
				t.Errorf("pause %d is %v", i, p)
			}
			if i > 8 && p != pauses[8] {
				different++
			}
		}
		if different == 0 {
			t.Errorf("the pauses have no jitter: %v", pauses)
		}
		d.heal()
		select {
		case <-led:
		case <-time.After(time.Minute):
			t.Error("it does not lead when the store is back")
		}
		cancel()
		wantErr(t, <-done, nil)
	})
}

// TestLeadEndsForGood checks the errors that Lead does not repeat, and that ctx
// and the end of the client end a campaign at once.
func TestLeadEndsForGood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		never := func(context.Context) error { t.Error("the function runs"); return nil }
		r := must(t)(other.RWMutex("a").RLock(bg))
		wantErr(t, c.Lead(bg, "a", never), holdfast.ErrKindMismatch)
		unlock(t, r)
		d.set(func(d *hooked) {
			d.join = func(context.Context, *driver.Ticket, joinFunc) (driver.Status, error) {
				return driver.Status{}, driver.Errorf(driver.Refused, "no rights")
			}
		})
		if _, ok := errors.AsType[*holdfast.StoreError](c.Lead(bg, "a", never)); !ok {
			t.Error("a refusal is no StoreError")
		}
		d.heal()
		for _, err := range []error{
			c.Lead(noContext, "a", never),
			c.Lead(bg, "", never),
			c.Lead(bg, "a", nil),
			c.Lead(bg, "a", never, holdfast.WithTTL(-1)),
		} {
			if err == nil {
				t.Error("bad input was taken")
			}
		}
		ended, cancel := context.WithCancel(bg)
		cancel()
		wantErr(t, c.Lead(ended, "a", never), nil)

		h := must(t)(other.Mutex("a").Lock(bg))
		start := time.Now()
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		wantErr(t, c.Lead(ctx, "a", never, holdfast.WithMaxWait(time.Second)), nil)
		if took := time.Since(start); took != time.Hour {
			t.Errorf("it waited %v: MaxWait has an effect", took)
		}
		done := make(chan error, 2)
		go func() { done <- c.Lead(bg, "a", never) }()
		d.set(func(d *hooked) {
			d.join = func(_ context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
				if tk.Name == "b" {
					return driver.Status{}, driver.Errorf(driver.Unavailable, "connection refused")
				}
				return next()
			}
		})
		go func() { done <- c.Lead(bg, "b", never) }()
		time.Sleep(time.Minute)
		wantErr(t, c.Shutdown(bg), nil)
		for range 2 {
			wantErr(t, <-done, holdfast.ErrClosed)
		}
		unlock(t, h)
		wantErr(t, c.Lead(bg, "a", never), holdfast.ErrClosed)
	})
}

// TestLeadAgainAfterMaxHold checks that a term that its MaxHold ended is a lost
// one: Lead campaigns again, behind the clients that wait.
func TestLeadAgainAfterMaxHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		terms := 0
		start := time.Now()
		err := c.Lead(bg, "a", func(ctx context.Context) error {
			if terms++; terms == 4 {
				return nil
			}
			<-ctx.Done()
			wantMaxHold(t, context.Cause(ctx))
			return nil
		}, holdfast.WithMaxHold(time.Minute))
		wantErr(t, err, nil)
		if took := time.Since(start); took < 3*time.Minute+300*time.Millisecond || took > 3*time.Minute+600*time.Millisecond {
			t.Errorf("three terms of a minute took %v; a long term does not begin the intervals anew", took)
		}
	})
}

// TestLeadWithMaxHoldInsideAHold checks that Lead with MaxHold is refused inside a
// hold of the same name, whose token all of its terms would have, and only there.
func TestLeadWithMaxHoldInsideAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		var tokens []uint64
		lead := func(ctx context.Context, opts ...holdfast.Option) error {
			return c.Lead(ctx, "a", func(ctx context.Context) error {
				tokens = append(tokens, holdfast.Token(ctx, "a"))
				if len(tokens) == 3 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}, opts...)
		}
		limit := holdfast.WithMaxHold(time.Minute)
		wantErr(t, c.Do(bg, "a", func(ctx context.Context) error {
			if err := lead(ctx, limit); err == nil || !strings.Contains(err.Error(), "MaxHold inside a hold") {
				t.Errorf("Lead with MaxHold inside a hold of its name: %v", err)
			}
			return nil
		}), nil)
		if len(tokens) > 0 {
			t.Fatalf("its terms have the tokens %d", tokens)
		}
		wantErr(t, c.Do(bg, "b", func(ctx context.Context) error { return lead(ctx, limit) }), nil)
		if len(tokens) != 3 || tokens[0] >= tokens[1] || tokens[1] >= tokens[2] {
			t.Errorf("the terms inside another name have the tokens %d", tokens)
		}
		wantErr(t, c.Do(bg, "a", func(ctx context.Context) error {
			return c.Lead(ctx, "a", func(context.Context) error { return nil })
		}), nil)
	})
}

// TestLeadByOneOwner checks that clients that name one owner lead at the same time, with
// one token, and that another owner stands by.
func TestLeadByOneOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		ctx, cancel := context.WithCancel(bg)
		tokens := make(chan uint64, 3)
		var all sync.WaitGroup
		for _, owner := range []string{"one", "one", "another"} {
			c := client(t, memlock.New(s))
			all.Go(func() {
				err := c.Lead(ctx, "m", func(ctx context.Context) error {
					tokens <- holdfast.Token(ctx, "m")
					<-ctx.Done()
					return nil
				}, holdfast.WithOwner(owner))
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if n := len(tokens); n != 2 {
			t.Errorf("%d lead", n)
		} else if a, b := <-tokens, <-tokens; a != b || a == 0 {
			t.Errorf("tokens %d and %d", a, b)
		}
		cancel()
		all.Wait()
	})
}
