package redislock

import (
	"errors"
	"net"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// classify gives an error of the client library its class.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*driver.Error](err); ok {
		return err
	}
	if text := wire.AnswerOf(err); text != "" {
		return wire.ClassifyAnswer(text, err)
	}
	if r, ok := errors.AsType[*client.Refusal](err); ok {
		return &driver.Error{Class: wire.ClassOfAnswer(r.Text), Err: r}
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok && oe.Op == "dial" {
		return &driver.Error{Class: driver.Unavailable, Err: err}
	}
	if errors.Is(err, client.ErrClosed) {
		// The client was closed by its owner and will serve no more.
		return &driver.Error{Class: driver.Refused, Err: err}
	}
	return driver.Wrap(driver.Unknown, err)
}

// errClosing is the error of a call during which the driver was closed.
var errClosing = &driver.Error{Class: driver.Unknown, Err: driver.ErrClosed}

var (
	// errDropped is the error of a call on a driver whose server is no longer
	// used.
	errDropped = driver.Errorf(driver.NotDone, "server is no longer the primary")
	// errCut is the error of a call that was under way when its server was
	// dropped.
	errCut = driver.Errorf(driver.Unknown, "connection closed: the server is no longer the primary")
)

// overErr returns the error of a call that begins after the driver's end.
func (d *Driver) overErr() error {
	if d.replaceable {
		return errDropped
	}
	return driver.ErrClosed
}

// cutErr returns the error of a call that was under way when the driver ended.
func (d *Driver) cutErr() error {
	if d.replaceable {
		return errCut
	}
	return errClosing
}

// classify gives an error of the driver's client its class. That the client is
// closed is its owner's doing, except at a replaceable driver, which closes its
// client itself.
func (d *Driver) classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrOver):
		return d.overErr()
	case errors.Is(err, client.ErrCut):
		return d.cutErr()
	case d.replaceable && errors.Is(err, client.ErrClosed):
		return errCut
	}
	return classify(err)
}
