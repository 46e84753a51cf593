package server

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Leave implements the method of [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if err := d.CheckOpen(ctx); err != nil {
		return nil, err
	}
	if d.Confirms != nil {
		defer d.Confirms.forget(refs)
	}
	return d.leave(ctx, refs)
}

func (d *Driver) leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	places := make([]driver.Status, len(refs))
	if len(refs) == 1 {
		r := d.requests.Leave(&refs[0])
		m, err := d.call(ctx, r)
		if wire.IsNoScript(err) {
			r.Full = true
			m, err = d.call(ctx, r)
		}
		places[0] = wire.ReadLeft(&m, err)
		return places, nil
	}
	for from := 0; from < len(refs); from += wire.MaxBatch {
		to := min(from+wire.MaxBatch, len(refs))
		d.leaveBatch(ctx, refs[from:to], places[from:to])
	}
	return places, nil
}

func (d *Driver) leaveBatch(ctx context.Context, refs []driver.Ref, places []driver.Status) {
	replies, err := onControl(ctx, d, func(c client.Conn) ([]wire.Reply, error) {
		runs := make([]wire.Run, len(refs))
		for i := range refs {
			runs[i] = d.requests.Leave(&refs[i]).Run()
		}
		return runAll(c, runs)
	})
	for i := range places {
		if err != nil {
			places[i] = driver.Status{Err: err}
			continue
		}
		places[i] = wire.ReadLeft(&replies[i], Classify(replies[i].Err))
	}
}
