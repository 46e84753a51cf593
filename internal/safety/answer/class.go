// Package answer gives the errors of Holdfast's calls their names in package
// check, which does not import Holdfast.
package answer

import (
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// Class returns the name of an error of a Lock, an Unlock or the end of a hold,
// empty for none. A store's error is named by the possible outcome of the
// request.
func Class(err error) string {
	var store *holdfast.StoreError
	var wait *holdfast.WaitError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, holdfast.ErrHeld):
		return checker.ErrHeld
	case errors.As(err, &wait):
		return checker.ErrWait
	case errors.Is(err, holdfast.ErrLost):
		return checker.ErrLost
	case errors.Is(err, holdfast.ErrClosed):
		return checker.ErrClosed
	case !errors.As(err, &store):
		return checker.ErrOther
	}
	switch driver.ClassOf(store.Err) {
	case driver.Unavailable:
		return checker.ErrUnavailable
	case driver.NotDone:
		return checker.ErrNotDone
	case driver.Unknown:
		return checker.ErrUnknown
	default:
		return checker.ErrRefused
	}
}
