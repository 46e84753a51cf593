package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/check"
	"github.com/holdfast-go/holdfast/check/answer"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/faults"
)

// Client is what the command of a Config runs: it reads what to do from in and
// writes a history to out, until it is done or in ends. An error means that it
// could not begin, or that in ended too early; it has told the other side.
func Client(ctx context.Context, in io.Reader, out io.Writer) error {
	return serve(ctx, in, out, anylock.Driver)
}

// client is one process of a run.
type client struct {
	setup
	w     *check.Writer
	locks *holdfast.Client
	drv   *disturbed

	calls   atomic.Int64  // counts calls
	drain   chan struct{} // closed when no new call is to begin
	waiting sync.Map      // name → number of the call of the only goroutine
	upset   atomic.Int64  // when trouble was last written
	told    atomic.Int64  // losses that contexts told
	noticed atomic.Int64  // and the observer

	mu      sync.Mutex
	answers map[int64]chan order // of the register, by call
}

func serve(ctx context.Context, in io.Reader, out io.Writer, open func(context.Context, string) (driver.Driver, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	c := &client{w: check.NewWriter(out), drain: make(chan struct{}), answers: make(map[int64]chan order)}
	if !lines.Scan() {
		return errors.New("torture: nobody said what to do")
	}
	if err := json.Unmarshal(lines.Bytes(), &c.setup); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	d, err := c.open(ctx, open)
	if err != nil {
		c.write(check.Event{What: broke, Text: err.Error()})
		return err
	}
	c.drv = &disturbed{Driver: d}
	c.locks, err = holdfast.New(c.drv, holdfast.WithTTL(c.TTL), holdfast.WithPrefix(c.Prefix), holdfast.WithObserver(c.observer()))
	if err != nil {
		c.write(check.Event{What: broke, Text: err.Error()})
		return errors.Join(err, d.Close())
	}
	c.write(check.Event{What: hello})
	// Nobody waits for the reader: it ends with in, which outlasts the client.
	go func() {
		err := c.obey(lines)
		cancel(err)
	}()
	if c.Probe {
		c.probe(ctx)
	} else {
		c.work(ctx)
	}
	return c.close(ctx)
}

// open opens the store. A client that is started again meets the faults of
// others: it has some TTLs for it.
func (c *client) open(ctx context.Context, open func(context.Context, string) (driver.Driver, error)) (driver.Driver, error) {
	for end := time.Now().Add(5*c.TTL + time.Minute); ; {
		limit, stop := context.WithDeadline(ctx, end)
		d, err := open(limit, c.Store)
		stop()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return d, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// close ends the client. What the observer is still to be told comes before the
// last line.
func (c *client) close(ctx context.Context) error {
	c.drv.lift().end()
	for end := time.Now().Add(5 * time.Second); c.noticed.Load() < c.told.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	err := c.locks.Close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := check.Event{What: bye}
	if err != nil {
		e.Err, e.Text = answer.Class(err), err.Error()
	}
	c.write(e)
	return nil
}

// obey reads orders until in ends.
func (c *client) obey(lines *bufio.Scanner) error {
	var once sync.Once
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("torture: %w", err)
		}
		switch o.Do {
		case "answer":
			c.mu.Lock()
			ch := c.answers[o.N]
			delete(c.answers, o.N)
			c.mu.Unlock()
			if ch != nil {
				ch <- o // has room for one
			}
		case "disturb":
			p, err := faults.Parse(o.Plan)
			if err != nil {
				return fmt.Errorf("torture: %w", err)
			}
			c.drv.begin(p)
		case "heal":
			// What is held is bounded, but long; answers must go on meanwhile, and
			// the next fault may begin.
			f := c.drv.lift()
			go func() { c.write(check.Event{What: healed, Value: f.end()}) }()
		case "drain":
			once.Do(func() { close(c.drain) })
		}
	}
	return errors.New("torture: the other side has ended")
}

// write stamps an event with who and when. That nobody reads any more is
// noticed by the reader of orders.
func (c *client) write(e check.Event) int64 {
	e.P, e.K = c.P, c.K
	t, _ := c.w.Write(e)
	return t
}

func (c *client) observer() *holdfast.Observer {
	return &holdfast.Observer{
		Waiting: func(name string, _ holdfast.Holder) {
			if n, ok := c.waiting.Load(name); ok {
				c.write(check.Event{What: check.Wait, N: n.(int64)})
			}
		},
		Lost: func(err *holdfast.LostError) {
			c.write(check.Event{What: check.Notice, Name: err.Name, Token: err.Token})
			c.noticed.Add(1)
		},
		Trouble: func(error) {
			now := check.Now()
			if last := c.upset.Load(); now-last > int64(50*time.Millisecond) && c.upset.CompareAndSwap(last, now) {
				c.write(check.Event{What: check.Upset})
			}
		},
	}
}

// beat is how often a client says that it runs.
const beat = 100 * time.Millisecond

// pulse says so, and for how long it did not run.
func (c *client) pulse(done <-chan struct{}) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for last := check.Now(); ; {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		e := check.Event{What: check.Pulse}
		if gap := check.Now() - last; gap > int64(beat+beat/2) {
			e.Gap = gap
		}
		last = c.write(e)
	}
}

// access asks the register, and waits for its answer.
func (c *client) access(ctx context.Context, e check.Event) (order, bool) {
	ch := make(chan order, 1)
	c.mu.Lock()
	c.answers[e.N] = ch
	c.mu.Unlock()
	c.write(e)
	select {
	case o := <-ch:
		return o, true
	case <-ctx.Done():
		return order{}, false
	}
}
