package faultproxy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Opening silences the connection on which a driver sends its k-th request while it
// is opened, for each k up to a number: a proxy or a pooler consents to the
// connection, and the server behind it does not answer. New connections are served.
// Opened without a deadline, the driver is open or has failed by [driver.OpenLimit],
// and then it names the address. The requests that prepare the store, and create
// tables, are not among the first, and may take longer.
//
// It fails a driver that bounds its attempts to connect, and not the wait for the
// first answer.
func Opening(t *testing.T, s Subject, requests int, open func(ctx context.Context, addr string) (driver.Driver, error)) {
	protocol := s.Protocol
	if protocol == nil {
		protocol = unknownProtocol
	}
	for k := 1; k <= requests; k++ {
		t.Run(fmt.Sprintf("request %d", k), func(t *testing.T) {
			t.Parallel()
			p := at(t, "127.0.0.1:0", s.Target, protocol, nil)
			p.Arm(k, Before, Silence)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			begun := time.Now()
			go func() {
				d, err := open(ctx, p.Addr())
				if err == nil {
					err = d.Close()
				}
				ended <- err
			}()
			limit := 3 * driver.OpenLimit // on a busy machine
			var err error
			select {
			case err = <-ended:
			case <-time.After(limit):
				t.Errorf("not open after %v", limit)
				cancel()
				<-ended
			}
			if p.Disarm() {
				t.Errorf("there was no request %d", k)
			}
			t.Logf("after %v: %v", time.Since(begun).Round(time.Millisecond), err)
			if err != nil && (driver.ClassOf(err) == driver.Refused || !strings.Contains(err.Error(), p.Addr())) {
				t.Errorf("class %v, want another one and the address %s", driver.ClassOf(err), p.Addr())
			}
		})
	}
}
