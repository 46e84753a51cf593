// Package golangmigrate lets one of many instances migrate a database with
// golang-migrate.
package golangmigrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast"
)

// Driver is the driver of a database, with a lock of Holdfast's in place of its
// own. Set the first four fields.
type Driver struct {
	database.Driver
	Context context.Context // of the program: its end ends the wait, and a migration after its current step
	Locks   *holdfast.Client
	Stop    chan<- bool // GracefulStop of the migration, which a loss of the lock ends

	hold *holdfast.Hold
	done func() bool
}

// Lock waits for less than migrate's LockTimeout of 15 s, after which migrate would
// forget a Lock that still runs.
func (d *Driver) Lock() error {
	hold, err := d.Locks.Mutex("migrate", holdfast.WithMaxWait(migrate.DefaultLockTimeout-5*time.Second)).Lock(d.Context)
	if errors.Is(err, holdfast.ErrHeld) {
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	if err != nil {
		return err
	}
	d.hold = hold
	d.done = context.AfterFunc(hold.Context(), func() {
		select {
		case d.Stop <- true:
		default: // stopping already
		}
	})
	return nil
}

// Unlock releases the lock. Its error tells a loss.
func (d *Driver) Unlock() error {
	d.done()
	return d.hold.Unlock()
}
