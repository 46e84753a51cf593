package memlock

import (
	"bytes"
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Marker = (*Driver)(nil)

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Mark{}, err
	}
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	m := d.store.marks[name]
	m.Value = bytes.Clone(m.Value)
	return m, nil
}

// SetMark implements [driver.Marker]. A mark lasts as long as the store.
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if err := driver.CheckMark(m); err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if m.Token < d.store.marks[name].Token {
		return driver.ErrStaleMark
	}
	m.Value = bytes.Clone(m.Value)
	d.store.marks[name] = m
	return nil
}
