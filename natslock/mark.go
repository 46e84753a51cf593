package natslock

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// markRecord is the mark of one name, as the bucket keeps it, without an end.
type markRecord struct {
	Layout int    `json:"holdfast"`
	Name   string `json:"name"`
	Token  uint64 `json:"token"`
	Value  []byte `json:"value"`
}

func decodeMark(key, name string, e entry) (driver.Mark, error) {
	if e.data == nil {
		return driver.Mark{}, nil
	}
	var m markRecord
	if err := json.Unmarshal(e.data, &m); err != nil || m.Layout != layout || m.Name != name {
		return driver.Mark{}, driver.Errorf(driver.Refused, "key %s: the value is not a mark of this name", key)
	}
	return driver.Mark{Token: m.Token, Value: m.Value}, nil
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	return d.aside(ctx, func(ctx context.Context) (driver.Mark, error) {
		key := markKey(name)
		e, err := d.bucket.get(ctx, key)
		if err != nil {
			return driver.Mark{}, err
		}
		return decodeMark(key, name, e)
	})
}

// SetMark implements [driver.Marker].
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := driver.CheckMark(m); err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	data, err := json.Marshal(markRecord{layout, name, m.Token, m.Value})
	if err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	_, err = d.aside(ctx, func(ctx context.Context) (driver.Mark, error) {
		return driver.Mark{}, d.setMark(ctx, name, m.Token, data)
	})
	return err
}

// setMark writes the mark unless there is one of a later holder.
func (d *Driver) setMark(ctx context.Context, name string, token uint64, data []byte) error {
	key := markKey(name)
	pause := backoff.Backoff{First: time.Millisecond, Last: 32 * time.Millisecond, Jitter: true}
	for {
		e, _, err := d.read(ctx, key)
		if err != nil {
			return err
		}
		have, err := decodeMark(key, name, e)
		if err != nil {
			return err
		}
		if token < have.Token {
			return driver.ErrStaleMark
		}
		if conflict, err := d.bucket.write(ctx, key, data, e.revision, 0); !conflict {
			return err
		}
		if !pause.Wait(ctx) {
			return driver.Wrap(driver.Unknown, context.Cause(ctx))
		}
	}
}

// aside makes requests about a name outside its lane, in a goroutine for whose end
// Close waits: a connection that blocks does not hold up the caller.
func (d *Driver) aside(ctx context.Context, do func(context.Context) (driver.Mark, error)) (driver.Mark, error) {
	if err := driver.Before(ctx); err != nil {
		return driver.Mark{}, err
	}
	type result struct {
		m   driver.Mark
		err error
	}
	done := make(chan result, 1)
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return driver.Mark{}, driver.ErrClosed
	}
	d.work.Go(func() {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(d.ctx, func() { cancel(driver.ErrClosed) })()
		m, err := do(ctx)
		done <- result{m, err}
	})
	d.mu.Unlock()
	select {
	case r := <-done:
		return r.m, r.err
	case <-ctx.Done():
		return driver.Mark{}, driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
}
