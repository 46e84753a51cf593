package sqlitelock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

var _ driver.Marker = (*Driver)(nil)

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	var m driver.Mark // not read after an error: the worker may still write it
	err := d.withMarks(ctx, func(db sqlqueue.DB) (err error) {
		m, err = d.queues.Mark(ctx, db, name)
		return err
	})
	if err != nil {
		return driver.Mark{}, err
	}
	return m, nil
}

// SetMark implements [driver.Marker].
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	return d.withMarks(ctx, func(db sqlqueue.DB) error { return d.queues.SetMark(ctx, db, name, m) })
}

// withMarks makes a request about a mark. The first one of a driver creates the
// table unless it exists.
func (d *Driver) withMarks(ctx context.Context, request func(db sqlqueue.DB) error) error {
	if !d.hasMarks.Load() {
		err := d.worker.do(ctx, false, func(db sqlqueue.DB) ([]sqlqueue.Push, error) {
			return nil, db.Auto(ctx, d.queues.MarkTable())
		})
		if err != nil {
			return err
		}
		d.hasMarks.Store(true)
	}
	return d.worker.do(ctx, false, func(db sqlqueue.DB) ([]sqlqueue.Push, error) { return nil, request(db) })
}
