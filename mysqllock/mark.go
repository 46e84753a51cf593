package mysqllock

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

var _ driver.Marker = (*Driver)(nil)

// CreateMarks implements [sqlqueue.Database].
func (d *database) CreateMarks(ctx context.Context) error {
	ctx, cancel := sqlqueue.Within(ctx, schemaTime)
	defer cancel()
	err := d.inConn(ctx, func(c *conn) error {
		return c.define(ctx, []string{d.tables.Queues.MarkSchema()})
	})
	if denied(err) {
		return driver.Errorf(driver.Refused, "the table %smark is missing, and this user may not create it; "+
			"ask an administrator to run, of the output of `holdfast schema mysql`, the statement that does: %w", d.opt.prefix(), err)
	}
	return err
}
