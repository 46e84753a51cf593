package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// read reads the record of the job's slots.
func (o *onceCall) read(ctx context.Context) (doneRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, o.markTimeout())
	defer cancel()
	return readRecord(ctx, o.c, o.marker, o.key.name)
}

// setMark sends one request to set the mark.
func (o *onceCall) setMark(m driver.Mark) error {
	if !o.c.beginCall() {
		return driver.ErrClosed
	}
	defer o.c.calls.Done()
	ctx, cancel := context.WithTimeout(o.c.requestCtx, o.markTimeout())
	defer cancel()
	lh := o.c.lanes.of(o.key.name)
	sent := lh.requestSent()
	err := o.marker.SetMark(ctx, o.key.name, m)
	lh.requestEnded(ctx, requestMark, sent, err)
	return err
}

// markTimeout bounds one request about a mark.
func (o *onceCall) markTimeout() time.Duration {
	ttl := o.key.ttl
	return o.c.lanes.of(o.key.name).requestTimeout(requestMark, callTimeout(ttl), silenceBudget(ttl))
}

// readRecord reads the mark of a name of the store.
func readRecord(ctx context.Context, c *Client, marker driver.Marker, full string) (doneRecord, error) {
	if !c.beginCall() {
		return doneRecord{}, driver.ErrClosed
	}
	defer c.calls.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.requestCtx, cancel)() // Close ends it
	lh := c.lanes.of(full)
	sent := lh.requestSent()
	m, err := marker.Mark(ctx, full)
	lh.requestEnded(ctx, requestMark, sent, err)
	if err != nil {
		return doneRecord{}, err
	}
	return parseDoneRecord(m.Value)
}
