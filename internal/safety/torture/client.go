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
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/answer"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// Client runs a client of a test, as the Command of a Config, and opens the store by
// open. It reads orders from in and writes a history to out, until it is done or in
// ends. An error means that it could not begin, or that in ended too early. If it cannot
// open the store, it also reports that on out.
func Client(ctx context.Context, in io.Reader, out io.Writer, open func(context.Context, string) (driver.Driver, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	c := &client{w: checker.NewWriter(out), drain: make(chan struct{}), answers: make(map[int64]chan order)}
	if !lines.Scan() {
		return errors.New("torture: nobody said what to do")
	}
	if err := json.Unmarshal(lines.Bytes(), &c.setup); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	d, err := c.open(ctx, open)
	if err != nil {
		c.write(checker.Event{What: broke, Text: err.Error()})
		return err
	}
	c.drv = newDisturbedDriver(d)
	c.locks, err = holdfast.New(c.drv, holdfast.WithTTL(c.TTL), holdfast.WithPrefix(c.Prefix), holdfast.WithObserver(c.observer()))
	if err != nil {
		c.write(checker.Event{What: broke, Text: err.Error()})
		return errors.Join(err, d.Close())
	}
	c.write(checker.Event{What: hello})
	// Nobody waits for the reader: it ends with in, which outlasts the client.
	go func() {
		err := c.readOrders(lines)
		cancel(err)
	}()
	if c.Probe {
		c.probe(ctx)
	} else {
		c.work(ctx)
	}
	return c.close(ctx)
}

// client is one process of a run.
type client struct {
	setup
	w     *checker.Writer
	locks *holdfast.Client
	drv   *disturbedDriver

	calls      atomic.Int64  // counts calls
	drain      chan struct{} // closed when no new call may begin
	waiting    sync.Map      // name → number of the call of the only goroutine
	disturbed  atomic.Int64  // the time at which trouble was last written
	lossesTold atomic.Int64  // losses reported by contexts and releases
	noticed    atomic.Int64  // losses reported by the observer

	mu      sync.Mutex
	answers map[int64]chan order // the register's answers, by call
}

// open opens the store. A client that is started again meets the faults of
// others, so open tries for five TTLs and a minute.
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

// close ends the client. It waits until the observer has reported every loss,
// so that those reports come before the last line.
func (c *client) close(ctx context.Context) error {
	c.drv.lift().end()
	for end := time.Now().Add(5 * time.Second); c.noticed.Load() < c.lossesTold.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	err := c.locks.Close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := checker.Event{What: bye}
	if err != nil {
		e.Err, e.Text = answer.Class(err), err.Error()
	}
	c.write(e)
	return nil
}

// readOrders reads orders until in ends.
func (c *client) readOrders(lines *bufio.Scanner) error {
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
				ch <- o // capacity 1
			}
		case "disturb":
			p, err := faults.Parse(o.Plan)
			if err != nil {
				return fmt.Errorf("torture: %w", err)
			}
			c.drv.begin(p)
		case "heal":
			// A request is held for a bounded, but long time. Answers must
			// continue meanwhile, and the next fault may begin.
			f := c.drv.lift()
			go func() { c.write(checker.Event{What: healed, Value: f.end()}) }()
		case "drain":
			once.Do(func() { close(c.drain) })
		}
	}
	return errors.New("torture: the other side has ended")
}

// write stamps an event with the client and the time, and writes it. The reader
// of orders notices when nobody reads the history any more.
func (c *client) write(e checker.Event) int64 {
	e.P, e.K = c.P, c.K
	t, _ := c.w.Write(e)
	return t
}

func (c *client) observer() *holdfast.Observer {
	return &holdfast.Observer{
		LockWait: func(_ context.Context, e holdfast.LockWaitInfo) {
			if e.Err != nil {
				c.recordDisturbance()
			} else if n, ok := c.waiting.Load(e.Name); ok {
				c.write(checker.Event{What: checker.Wait, N: n.(int64)})
			}
		},
		HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
			if errors.Is(e.Err, holdfast.ErrLost) {
				c.write(checker.Event{What: checker.Notice, Name: e.Name, Token: e.Token})
				c.noticed.Add(1)
			}
		},
		BackgroundError: func(context.Context, holdfast.BackgroundErrorInfo) { c.recordDisturbance() },
	}
}

// recordDisturbance notes that a request failed, not too often.
func (c *client) recordDisturbance() {
	now := checker.Now()
	if last := c.disturbed.Load(); now-last > int64(50*time.Millisecond) && c.disturbed.CompareAndSwap(last, now) {
		c.write(checker.Event{What: checker.Upset})
	}
}

// beat is the time between two signs of life of a client.
const beat = 100 * time.Millisecond

// pulse reports that the process is alive, and the time in which it did not
// run.
func (c *client) pulse(done <-chan struct{}) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for last := checker.Now(); ; {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		e := checker.Event{What: checker.Pulse}
		if gap := checker.Now() - last; gap > int64(beat+beat/2) {
			e.Gap = gap
		}
		last = c.write(e)
	}
}

// access sends an access to the register, and waits for the answer.
func (c *client) access(ctx context.Context, e checker.Event) (order, bool) {
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
