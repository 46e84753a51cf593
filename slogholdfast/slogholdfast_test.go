package slogholdfast_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/slogholdfast"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// lines collects a log, without the times and the values that differ.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case a.Key == slog.TimeKey:
			return slog.Attr{}
		case a.Key == "token":
			return slog.String("token", "T")
		case a.Key == "holder", len(groups) > 0:
			return slog.String(a.Key, "H")
		}
		return a
	}}))
}

// want compares the log since the last call.
func (l *lines) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	got := strings.Split(strings.TrimSpace(l.b.String()), "\n")
	l.b.Reset()
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("line %d: %s\nwant      %s", i, got[i], w)
		}
	}
}

// broken is a driver whose renewals and releases fail while set.
type broken struct {
	driver.Driver
	mu  sync.Mutex
	err error
}

func (b *broken) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *broken) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

func (b *broken) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := b.failure(); err != nil {
		return nil, err
	}
	return b.Driver.Renew(ctx, refs)
}

func (b *broken) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := b.failure(); err != nil {
		return driver.Status{}, err
	}
	return b.Driver.Join(ctx, t, wait)
}

func locks(t *testing.T, d driver.Driver, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(d, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestLevelOfEachEvent checks the level and the attributes of each event.
func TestLevelOfEachEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		s := memlock.NewStore()
		c := locks(t, memlock.New(s), holdfast.WithObserver(slogholdfast.Observer(log.logger())))
		other := locks(t, memlock.New(s))

		err := c.Semaphore("s", 3).Do(bg, 2, func(context.Context) error { time.Sleep(time.Second); return nil })
		if err != nil {
			t.Fatal(err)
		}
		log.want(t, "level=DEBUG msg=\"taking a lock\" lock=s kind=permits units=2 try=false",
			"level=DEBUG msg=\"lock taken\" lock=s kind=permits units=2 token=T waited=0s",
			"level=DEBUG msg=\"lock released\" lock=s kind=permits units=2 token=T held=1s")

		h, err := other.Mutex("a").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Mutex("a", holdfast.WithOwner("job")).TryLock(bg); !errors.Is(err, holdfast.ErrHeld) {
			t.Error(err)
		}
		log.want(t, "level=DEBUG msg=\"taking a lock\" lock=a kind=mutex owner=job try=true",
			"level=DEBUG msg=\"lock not taken\" lock=a kind=mutex owner=job waited=0s error=")

		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		if _, err := c.Mutex("a").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		log.want(t, "level=DEBUG msg=\"taking a lock\" lock=a kind=mutex try=false",
			"level=DEBUG msg=\"waiting for a lock\" lock=a kind=mutex holder",
			"level=INFO msg=\"lock not taken\" lock=a kind=mutex waited=1ms error=")

		time.AfterFunc(time.Second, func() { _ = h.Unlock() })
		mine, err := c.Mutex("a").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		log.want(t, "level=DEBUG msg=\"taking a lock\"", "level=DEBUG msg=\"waiting for a lock\"",
			"level=INFO msg=\"lock taken\" lock=a kind=mutex token=T waited=1s")

		l, err := other.Inspect(bg, "a")
		if err == nil {
			err = other.Break(bg, "a", l.Holders[0].ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		log.want(t, "level=ERROR msg=\"lock lost\" lock=a kind=mutex token=T held=0s error=")
		_ = mine.Unlock()
	})
}

// TestStoreErrors checks that errors of the store are warnings, one line in 10 s
// for each operation, and that the next line counts those between.
func TestStoreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		d := &broken{Driver: memlock.New(memlock.NewStore())}
		c := locks(t, d, holdfast.WithTTL(40*time.Second), holdfast.WithObserver(slogholdfast.Observer(log.logger())))
		h, err := c.Mutex("a").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		log.want(t, "level=DEBUG msg=\"taking a lock\"", "level=DEBUG msg=\"lock taken\"")
		d.fail(driver.NotReady(time.Second, "not now"))
		time.Sleep(25 * time.Second)
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		if _, err := c.Mutex("b").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		d.fail(nil)
		synctest.Wait()
		got := log.text()
		if n := strings.Count(got, "operation=renew"); n < 1 || n > 3 || strings.Count(got, "level=WARN") != n+1 ||
			!strings.Contains(got, `level=WARN msg="store error" operation=acquire lock=b error=`) {
			t.Errorf("%d warnings of renewals:\n%s", n, got)
		} else if n > 1 && !strings.Contains(got, "omitted=") {
			t.Errorf("no count of omitted lines:\n%s", got)
		}
		_ = h.Unlock()
	})
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestDefaultLogger checks that nil is the default logger at the time of the
// event, and that the handler gets the context of the call.
func TestDefaultLogger(t *testing.T) {
	type key struct{}
	before := slog.Default()
	defer slog.SetDefault(before)
	o := slogholdfast.Observer(nil)
	h := &contexts{Handler: slog.DiscardHandler, key: key{}}
	slog.SetDefault(slog.New(h))
	c := locks(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(o))
	if err := c.Do(context.WithValue(bg, key{}, "here"), "a", func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if h.seen != 3 {
		t.Errorf("%d events with the caller's context, want 3", h.seen)
	}
}

// contexts counts the records whose context has a value.
type contexts struct {
	slog.Handler
	key  any
	seen int
}

func (c *contexts) Enabled(context.Context, slog.Level) bool { return true }

func (c *contexts) Handle(ctx context.Context, _ slog.Record) error {
	if ctx.Value(c.key) == "here" {
		c.seen++
	}
	return nil
}
