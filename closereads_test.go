package holdfast_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// silentReads is a driver whose store answers no request that is about no ticket of the
// client's own.
type silentReads struct {
	*memlock.Driver
	underWay      atomic.Int32
	closedBeneath atomic.Bool // Close was called while a request was under way
}

func (d *silentReads) wait(ctx context.Context) error {
	d.underWay.Add(1)
	defer d.underWay.Add(-1)
	<-ctx.Done()
	return driver.Wrap(driver.Unknown, context.Cause(ctx))
}

func (d *silentReads) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return driver.Queue{Name: name}, d.wait(ctx)
}

func (d *silentReads) Names(ctx context.Context, _ string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", d.wait(ctx)) }
}

func (d *silentReads) Break(ctx context.Context, _, _ string) error { return d.wait(ctx) }

func (d *silentReads) Check(ctx context.Context) ([]driver.Finding, error) { return nil, d.wait(ctx) }

func (d *silentReads) Identity(ctx context.Context) (string, error) { return "", d.wait(ctx) }

func (d *silentReads) Mark(ctx context.Context, _ string) (driver.Mark, error) {
	return driver.Mark{}, d.wait(ctx)
}

func (d *silentReads) Close() error {
	d.closedBeneath.Store(d.underWay.Load() > 0)
	return d.Driver.Close()
}

// reads are the calls of a client that take no lock.
var reads = map[string]func(*holdfast.Client, context.Context) error{
	"Inspect":  func(c *holdfast.Client, ctx context.Context) error { _, err := c.Inspect(ctx, "a"); return err },
	"Break":    func(c *holdfast.Client, ctx context.Context) error { return c.Break(ctx, "a", "x") },
	"Check":    func(c *holdfast.Client, ctx context.Context) error { _, err := c.Check(ctx); return err },
	"Identity": func(c *holdfast.Client, ctx context.Context) error { _, err := c.Identity(ctx); return err },
	"LastDone": func(c *holdfast.Client, ctx context.Context) error { _, err := c.LastDone(ctx, "a"); return err },
	"Ping":     func(c *holdfast.Client, ctx context.Context) error { return c.Ping(ctx) },
	"Names": func(c *holdfast.Client, ctx context.Context) error {
		for _, err := range c.Names(ctx, "") {
			return err
		}
		return errors.New("nothing was yielded")
	},
}

// TestF136_CloseEndsReads checks that a call that takes no lock ends with ErrClosed when
// Close or Shutdown closes the client while the store is silent, at once and before the
// driver is closed, and that the call's own context ends it with its own error.
func TestF136_CloseEndsReads(t *testing.T) {
	for name, read := range reads {
		for how, end := range map[string]func(*holdfast.Client) error{
			"Close":    (*holdfast.Client).Close,
			"Shutdown": func(c *holdfast.Client) error { return c.Shutdown(bg) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := &silentReads{Driver: memlock.New(memlock.NewStore())}
					c := client(t, d)
					ended, result := context.WithCancelCause(bg)
					oops := errors.New("oops")
					result(oops)
					if err := read(c, ended); errors.Is(err, holdfast.ErrClosed) || err == nil {
						t.Errorf("a call whose own context has ended: %v", err)
					}
					done := make(chan error, 1)
					go func() { done <- read(c, bg) }()
					synctest.Wait()
					if err := end(c); err != nil {
						t.Errorf("%s: %v", how, err)
					}
					synctest.Wait()
					select {
					case err := <-done:
						wantErr(t, err, holdfast.ErrClosed)
					default:
						t.Error("the call goes on")
					}
					if name != "Names" && d.closedBeneath.Load() {
						t.Error("the driver is closed while the call is under way")
					}
				})
			})
		}
	}
}

// TestNamesMayCloseTheClient checks that Close does not wait for the loop that calls it.
func TestNamesMayCloseTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		must(t)(c.Mutex("a").Lock(bg))
		n := 0
		for _, err := range c.Names(bg, "") {
			if err != nil {
				wantErr(t, err, holdfast.ErrClosed)
				break
			}
			n++
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if n != 1 {
			t.Errorf("%d names", n)
		}
	})
}
