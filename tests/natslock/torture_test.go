package natslock_test

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/trace/tracetest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/natslock"
)

// TestRecordTorture writes the requests of a torture of the stores nats and cut=nats,
// which internal/proof holds against the specification. Without a folder it checks that
// they can be written as a module.
func TestRecordTorture(t *testing.T) {
	tracetest.Torture(t, "nats", func(t *testing.T, name string, cutting *tracetest.Cutting) tracetest.Opener {
		s := servers.StartNATS(t, "")
		url := s.URL()
		switch name {
		case "nats":
		case "cut=nats":
			url = strings.ReplaceAll(url, s.Addr(), cutting.ByProxy(t, s.Addr()))
		default:
			t.Fatalf("there is no store %q", name)
		}
		return func(ctx context.Context) (driver.Driver, error) { return natslock.OpenURL(ctx, url) }
	})
}
