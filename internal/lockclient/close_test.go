package lockclient

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// closesFirst is a context that closes a driver when it is first asked whether it has ended,
// as each call does before it begins.
type closesFirst struct {
	context.Context
	once  sync.Once
	close func()
}

func (c *closesFirst) Err() error {
	c.once.Do(c.close)
	return c.Context.Err()
}

// counted counts the requests that begin.
type counted struct {
	http.RoundTripper
	n atomic.Int64
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// TestNothingRunsAfterClose closes a driver while Watch is about to begin: it begins nothing
// after Close has returned, and does not block.
func TestNothingRunsAfterClose(t *testing.T) {
	for range 100 {
		bubble(t, func(w *world) {
			tr := &counted{RoundTripper: w.net}
			d, err := open(context.Background(), &address{hosts: w.hosts}, tr)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var before int64
			err = d.Watch(&closesFirst{Context: ctx, close: func() { _ = d.Close(); before = tr.n.Load() }}, func(string, driver.Status) {})
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("Watch: %v", err)
			}
			if n := tr.n.Load() - before; n != 0 {
				t.Errorf("%d requests began after Close", n)
			}
		})
	}
}

// TestWatchLearnsOfAnEndBeforeItsStream ends the driver before the goroutine of Watch asks for
// its stream: Watch waits for a result.
func TestWatchLearnsOfAnEndBeforeItsStream(t *testing.T) {
	bubble(t, func(w *world) {
		d := w.open()
		_ = d.Close()
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		opened := make(chan error, 1)
		d.runEvents(ended, nil, opened)
		select {
		case err := <-opened:
			if !errors.Is(err, driver.ErrClosed) {
				t.Error(err)
			}
		default:
			t.Error("no result")
		}
	})
}
