// Package slogholdfast writes the events of a client's locks to a log.
//
//	locks, err := holdfast.New(driver, holdfast.WithObserver(slogholdfast.Observer(nil)))
//
// A loss is an Error. Errors of the store are Warnings, at most one line in 10 s
// for each operation. Calls that end without the lock, or that waited for 1 s,
// are Info; a refused Try is not. All else is Debug. The attributes are lock,
// kind, units (of a semaphore), owner, token, waited, held, holder, operation
// and error, where they apply.
package slogholdfast

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	longWait      = time.Second      // a call that waited for it is worth a line
	errorInterval = 10 * time.Second // between two lines about one operation
)

// Observer returns an Observer that writes to log; nil is slog.Default() at the
// time of each event. The contexts of the events reach the log's handler. The
// functions block for as long as the handler does.
func Observer(log *slog.Logger) *holdfast.Observer {
	w := &writer{log: log, shown: make(map[string]*shownErrors)}
	return &holdfast.Observer{
		LockStart: w.lockStart, LockWait: w.lockWait, LockDone: w.lockDone,
		HoldDone: w.holdDone, BackgroundError: w.backgroundError,
	}
}

// writer writes events.
type writer struct {
	log *slog.Logger

	mu    sync.Mutex
	shown map[string]*shownErrors // by operation
}

// shownErrors is the record of the lines about one operation.
type shownErrors struct {
	at      time.Time // of the last line
	omitted int       // since then
}

func (w *writer) logger() *slog.Logger {
	if w.log != nil {
		return w.log
	}
	return slog.Default()
}

// write writes one line about e.
func (w *writer) write(ctx context.Context, level slog.Level, msg string, e holdfast.Event, more ...slog.Attr) {
	log := w.logger()
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 9), slog.String("lock", e.Name), slog.String("kind", string(e.Kind)))
	if e.Kind == holdfast.KindPermits {
		attrs = append(attrs, slog.Int("units", e.Units))
	}
	if e.Owner != "" {
		attrs = append(attrs, slog.String("owner", e.Owner))
	}
	log.LogAttrs(ctx, level, msg, append(attrs, more...)...)
}

func (w *writer) lockStart(ctx context.Context, e holdfast.LockStartInfo) context.Context {
	w.write(ctx, slog.LevelDebug, "taking a lock", e.Event, slog.Bool("try", e.Try))
	return ctx
}

func (w *writer) lockWait(ctx context.Context, e holdfast.LockWaitInfo) {
	if e.Err != nil {
		w.storeError(ctx, "acquire", e.Err, slog.String("lock", e.Name))
		return
	}
	var holder []slog.Attr
	if e.Holder != (holdfast.Holder{}) {
		holder = []slog.Attr{slog.Any("holder", e.Holder)}
	}
	w.write(ctx, slog.LevelDebug, "waiting for a lock", e.Event, holder...)
}

func (w *writer) lockDone(ctx context.Context, e holdfast.LockDoneInfo) context.Context {
	level := slog.LevelDebug
	if e.Waited >= longWait {
		level = slog.LevelInfo
	}
	if e.Err == nil {
		w.write(ctx, level, "lock taken", e.Event, slog.Uint64("token", e.Token), slog.Duration("waited", e.Waited))
		return ctx
	}
	if _, refused := errors.AsType[*holdfast.HeldError](e.Err); !refused {
		level = slog.LevelInfo
	}
	w.write(ctx, level, "lock not taken", e.Event, slog.Duration("waited", e.Waited), slog.Any("error", e.Err))
	return ctx
}

func (w *writer) holdDone(ctx context.Context, e holdfast.HoldDoneInfo) {
	token, held := slog.Uint64("token", e.Token), slog.Duration("held", e.Held)
	if e.Err == nil {
		w.write(ctx, slog.LevelDebug, "lock released", e.Event, token, held)
		return
	}
	level, msg := slog.LevelDebug, "lock ended"
	if errors.Is(e.Err, holdfast.ErrLost) {
		level, msg = slog.LevelError, "lock lost"
	} else if _, ok := errors.AsType[*holdfast.StoreError](e.Err); ok {
		w.storeError(ctx, "release", e.Err, slog.String("lock", e.Name), token)
		return
	}
	w.write(ctx, level, msg, e.Event, token, held, slog.Any("error", e.Err))
}

func (w *writer) backgroundError(ctx context.Context, e holdfast.BackgroundErrorInfo) {
	if e.Name == "" {
		w.storeError(ctx, e.Op, e.Err)
		return
	}
	w.storeError(ctx, e.Op, e.Err, slog.String("lock", e.Name))
}

// storeError writes a warning, unless one about op was written a short time
// ago. The next line says how many were omitted.
func (w *writer) storeError(ctx context.Context, op string, err error, more ...slog.Attr) {
	now := time.Now()
	w.mu.Lock()
	s := w.shown[op]
	if s == nil {
		s = &shownErrors{at: now.Add(-errorInterval)}
		w.shown[op] = s
	}
	if now.Sub(s.at) < errorInterval {
		s.omitted++
		w.mu.Unlock()
		return
	}
	omitted := s.omitted
	s.at, s.omitted = now, 0
	w.mu.Unlock()
	attrs := append([]slog.Attr{slog.String("operation", op)}, more...)
	if omitted > 0 {
		attrs = append(attrs, slog.Int("omitted", omitted))
	}
	w.logger().LogAttrs(ctx, slog.LevelWarn, "store error", append(attrs, slog.Any("error", err))...)
}
