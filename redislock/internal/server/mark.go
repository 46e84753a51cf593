package server

import (
	"context"
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Mark implements the method of [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	if err := d.CheckOpen(ctx); err != nil {
		return driver.Mark{}, err
	}
	keys := d.requests.MarkKeys(name)
	r, err := onControl(ctx, d, func(c client.Conn) (wire.Reply, error) { return runOn(c, d.requests.Scripts.Mark, keys) })
	if err != nil {
		return driver.Mark{}, err
	}
	return wire.ReadMark(&r)
}

// SetMark implements the method of [driver.Marker].
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := d.CheckOpen(ctx); err != nil {
		return err
	}
	if err := driver.CheckMark(m); err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	keys := d.requests.MarkKeys(name)
	args := []string{fmt.Sprintf("%020d", m.Token), string(m.Value), strconv.FormatInt(driver.MarkTTL.Milliseconds(), 10)}
	conn := &d.control
	if d.Confirms != nil {
		conn = &d.confirmConn
	}
	refused, err := onOwnConn(ctx, d, conn, func(c client.Conn) (refused, err error) {
		r, err := runOn(c, d.requests.Scripts.Mark, keys, args...)
		if err != nil {
			return nil, err
		}
		if refused = wire.ReadMarkSet(&r); refused != nil || d.Confirms == nil {
			return refused, nil
		}
		n, err := d.Confirms.wait(c, d.Confirms.within)
		if err == nil && n < int64(d.Confirms.replicas) {
			refused = driver.Errorf(driver.Unknown, "too few replicas have confirmed the mark: %d of %d", n, d.Confirms.replicas)
		}
		return refused, err
	})
	if err != nil {
		return err
	}
	return refused
}
