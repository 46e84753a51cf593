package sqlqueue

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTick(t *testing.T) {
	for _, wall := range []time.Time{{}, time.Unix(0, 0), driver.Epoch, driver.Epoch.Add(time.Hour), time.Now()} {
		if got, want := Tick(wall), driver.NextToken(0, 0, wall); uint64(got) != want {
			t.Errorf("%v: %d, want %d", wall, got, want)
		}
	}
}
