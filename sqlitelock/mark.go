package sqlitelock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

var _ driver.Marker = (*Driver)(nil)

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	return withMarks(ctx, d, func(db sqlqueue.DB) (driver.Mark, error) { return d.queues.Mark(ctx, db, name) })
}

// SetMark implements [driver.Marker].
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	_, err := withMarks(ctx, d, func(db sqlqueue.DB) (any, error) { return nil, d.queues.SetMark(ctx, db, name, m) })
	return err
}

// withMarks makes a request about a mark. The first one of a driver creates the
// table unless it exists.
func withMarks[T any](ctx context.Context, d *Driver, request func(db sqlqueue.DB) (T, error)) (none T, err error) {
	if !d.hasMarks.Load() {
		err := d.worker.do(ctx, false, func(db sqlqueue.DB) ([]sqlqueue.Push, error) {
			return nil, db.Auto(ctx, d.queues.MarkTable())
		})
		if err != nil {
			return none, err
		}
		d.hasMarks.Store(true)
	}
	return ask(ctx, d, false, func(db sqlqueue.DB) (T, []sqlqueue.Push, error) {
		got, err := request(db)
		return got, nil, err
	})
}
