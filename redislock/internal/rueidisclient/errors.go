package rueidisclient

import (
	"errors"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// failure converts an error of rueidis.
func failure(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, rueidis.ErrClosing) {
		return closed{}
	}
	if re, ok := errors.AsType[*rueidis.RedisError](err); ok && !re.IsNil() {
		return wire.ServerError(re.Error())
	}
	return err
}

// closed is the error of a client that was closed, in the library's words.
type closed struct{}

// Error returns the library's words.
func (closed) Error() string { return rueidis.ErrClosing.Error() }

// Unwrap returns what the error is to the driver, and to the library.
func (closed) Unwrap() []error { return []error{client.ErrClosed, rueidis.ErrClosing} }
