package redislock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

var (
	_ driver.Marker = (*Driver)(nil)
	_ driver.Marker = (*Sentinel)(nil)
	_ driver.Marker = (*Cluster)(nil)
)

// markKeys returns the keys of a script on the mark of a name.
func (d *Driver) markKeys(name string) []string {
	l := d.keys.Make(name)
	key := wire.DoneName + wire.InSlot(l.Keys[wire.KeyHolders])
	return append([]string{key}, l.All()[wire.KeyNone:]...)
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Mark{}, err
	}
	keys := d.markKeys(name)
	r, err := onControl(ctx, d, func(c client.Conn) (wire.Reply, error) { return runOn(c, wire.MarkScript, keys) })
	if err != nil {
		return driver.Mark{}, err
	}
	return wire.ReadMark(&r)
}

// SetMark implements [driver.Marker]. With MinReplicas, a mark that too few
// replicas confirm in time is an error of unknown outcome.
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if err := driver.CheckMark(m); err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	keys := d.markKeys(name)
	args := []string{fmt.Sprintf("%020d", m.Token), string(m.Value), strconv.FormatInt(driver.MarkTTL.Milliseconds(), 10)}
	conn := &d.control
	if d.confirms != nil {
		conn = &d.confirmConn
	}
	refused, err := onOwnConn(ctx, d, conn, func(c client.Conn) (refused, err error) {
		r, err := runOn(c, wire.MarkScript, keys, args...)
		if err != nil {
			return nil, err
		}
		if refused = wire.ReadMarkSet(&r); refused != nil || d.confirms == nil {
			return refused, nil
		}
		n, err := d.confirmMark(c)
		if err == nil && n < int64(d.confirms.replicas) {
			refused = driver.Errorf(driver.Unknown, "too few replicas have confirmed the mark: %d of %d", n, d.confirms.replicas)
		}
		return refused, err
	})
	if err != nil {
		return err
	}
	return refused
}

// confirmMark returns how many replicas have the writes of a connection, as soon
// as they are enough.
func (d *Driver) confirmMark(c client.Conn) (int64, error) {
	within := max(d.confirms.within/time.Millisecond, 1)
	r, err := c.Do("WAIT", strconv.Itoa(d.confirms.replicas), strconv.FormatInt(int64(within), 10))
	if err != nil {
		return 0, err
	}
	return r.Int()
}

// Mark implements [driver.Marker].
func (s *Sentinel) Mark(ctx context.Context, name string) (m driver.Mark, err error) {
	err = s.onPrimary(ctx, func(d *Driver) error {
		m, err = d.Mark(ctx, name)
		return err
	})
	return m, err
}

// SetMark implements [driver.Marker].
func (s *Sentinel) SetMark(ctx context.Context, name string, m driver.Mark) error {
	return s.onPrimary(ctx, func(d *Driver) error { return d.SetMark(ctx, name, m) })
}

// Mark implements [driver.Marker].
func (c *Cluster) Mark(ctx context.Context, name string) (m driver.Mark, err error) {
	if err := c.checkOpen(ctx); err != nil {
		return driver.Mark{}, err
	}
	err = c.onOwner(ctx, c.keys.Get(name).Slot, func(d *Driver) error {
		m, err = d.Mark(ctx, name)
		return err
	})
	return m, err
}

// SetMark implements [driver.Marker].
func (c *Cluster) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := c.checkOpen(ctx); err != nil {
		return err
	}
	return c.onOwner(ctx, c.keys.Get(name).Slot, func(d *Driver) error { return d.SetMark(ctx, name, m) })
}
