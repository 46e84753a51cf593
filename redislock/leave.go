package redislock

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
)

// Leave implements [driver.Driver]: a script for each ticket, all sent at once.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Place, len(refs))
	if len(refs) == 1 {
		m, err := d.do(ctx, d.leaveCommand(&refs[0], false))
		if noScript(err) {
			m, err = d.do(ctx, d.leaveCommand(&refs[0], true))
		}
		places[0] = readLeft(&m, err)
		return places, nil
	}
	for from := 0; from < len(refs); from += maxBatch {
		to := min(from+maxBatch, len(refs))
		d.leaveBatch(ctx, refs[from:to], places[from:to])
	}
	return places, nil
}

func (d *Driver) leaveBatch(ctx context.Context, refs []driver.Ref, places []driver.Place) {
	results, err := beside(ctx, d, func(c rueidis.DedicatedClient) ([]rueidis.RedisResult, error) {
		cmds := make([]rueidis.Completed, len(refs))
		for i := range refs {
			cmds[i] = d.leaveCommand(&refs[i], false)
		}
		results := c.DoMulti(context.Background(), cmds...)
		for i, r := range results {
			err := r.Error()
			if noScript(err) {
				results[i] = c.Do(context.Background(), d.leaveCommand(&refs[i], true))
				err = results[i].Error()
			}
			if broken(err) {
				return results, err
			}
		}
		return results, nil
	})
	for i := range places {
		if err != nil {
			places[i] = driver.Place{Err: err}
			continue
		}
		m, err := results[i].ToMessage()
		places[i] = readLeft(&m, classify(err))
	}
}

func (d *Driver) leaveCommand(r *driver.Ref, full bool) rueidis.Completed {
	args := [...]string{r.ID, yes(plain(r.Ticket)), "1"}
	n := 2
	if r.Unsure {
		n = 3
	}
	return leaveScript.command(d.client.B(), full, d.lines.get(r.Name).keys[:], args[:n]...)
}

// readLeft reads what leave says: the state in which it found the ticket.
func readLeft(m *rueidis.RedisMessage, err error) driver.Place {
	if err != nil {
		return driver.Place{Err: err}
	}
	n, err := m.ToInt64()
	if err != nil {
		if list, err := m.ToArray(); err == nil && len(list) == 1 {
			return driver.Place{Err: driver.Wrap(driver.Refused, errForeign)}
		}
		return driver.Place{Err: unreadable("no state")}
	}
	switch s := driver.State(n); s {
	case driver.Waiting, driver.Held, driver.Gone:
		return driver.Place{State: s}
	}
	return driver.Place{Err: unreadable("state %d", n)}
}
