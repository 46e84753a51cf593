package pglock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

var _ driver.Marker = (*Driver)(nil)

// CreateMarks implements [sqlqueue.Database].
func (d *database) CreateMarks(ctx context.Context) error {
	exists := false
	probe := &sqlqueue.Stmt{Text: &sqlqueue.Text{SQL: "SELECT 1::bigint WHERE to_regclass('" + d.opt.tables() + "mark') IS NOT NULL"}}
	probe.Row = func(func(...any) error) error { exists = true; return nil }
	err := d.exclusively(ctx, probe, func() []string {
		if exists {
			return nil
		}
		return []string{d.tables.Queues.MarkSchema()}
	})
	if code(err) == noRights {
		return driver.Errorf(driver.Refused, "the table %smark is missing, and this user may not create it; "+
			"ask an administrator to run, of the output of `holdfast schema postgres`, the statement that does: %w", d.opt.tables(), err)
	}
	return err
}
