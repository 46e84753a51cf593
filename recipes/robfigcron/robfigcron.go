// Package robfigcron runs the jobs of robfig/cron once for each time of their
// schedules, on one machine of all that have them.
package robfigcron

import (
	"context"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
)

// Add adds a job to c. The slot is the time for which cron started the job, so all
// machines need the same schedule in the same time zone. The result of each run goes
// to report.
func Add(ctx context.Context, c *cron.Cron, locks *holdfast.Client, name, schedule string,
	job func(context.Context) error, report func(holdfast.Done, error)) error {
	added := make(chan cron.EntryID, 1)
	id, err := c.AddFunc(schedule, func() {
		id := <-added
		added <- id
		report(locks.Once(ctx, name, c.Entry(id).Prev, job))
	})
	added <- id
	return err
}
