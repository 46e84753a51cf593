// Package answer names the errors of Holdfast's calls as package check does,
// which knows nobody's errors.
package answer

import (
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/check"
	"github.com/holdfast-go/holdfast/driver"
)

// Class returns the name of an error of a Lock, an Unlock or the end of a hold,
// empty for none. A store's error is named by what may have come of the request.
func Class(err error) string {
	var store *holdfast.StoreError
	var wait *holdfast.WaitError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, holdfast.ErrHeld):
		return check.ErrHeld
	case errors.As(err, &wait):
		return check.ErrWait
	case errors.Is(err, holdfast.ErrLost):
		return check.ErrLost
	case errors.Is(err, holdfast.ErrClosed):
		return check.ErrClosed
	case !errors.As(err, &store):
		return check.ErrOther
	}
	switch driver.ClassOf(store.Err) {
	case driver.Unavailable:
		return check.ErrUnavailable
	case driver.NotDone:
		return check.ErrNotDone
	case driver.Unknown:
		return check.ErrUnknown
	default:
		return check.ErrRefused
	}
}
