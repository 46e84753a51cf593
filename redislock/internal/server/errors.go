package server

import (
	"errors"
	"net"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Classify gives an error of the client library its class.
func Classify(err error) error {
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
