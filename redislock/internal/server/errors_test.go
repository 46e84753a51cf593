package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

func TestClassify(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	broken := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	for _, c := range []struct {
		err  error
		want driver.Class
	}{
		{refused, driver.Unavailable},
		{fmt.Errorf("wrapped: %w", refused), driver.Unavailable},
		{broken, driver.Unknown},
		{io.EOF, driver.Unknown},
		{context.DeadlineExceeded, driver.Unknown},
		{client.ErrClosed, driver.Refused},
		{rueidis.Nil, driver.Unknown},
		{&client.Refusal{Text: "ERR max number of clients reached"}, driver.Unavailable},
		{&client.Refusal{Text: "DENIED Redis is running in protected mode"}, driver.Refused},
		{driver.Errorf(driver.NotDone, "already classed"), driver.NotDone},
	} {
		if got := driver.ClassOf(Classify(c.err)); got != c.want {
			t.Errorf("%v is %v, want %v", c.err, got, c.want)
		}
		if !errors.Is(Classify(c.err), c.err) {
			t.Errorf("%v is not in its own classification", c.err)
		}
	}
	if Classify(nil) != nil {
		t.Error("no error has a class")
	}
}
