package tombstone_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/tombstone"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestIDsAreKeptForOneToTwoTerms adds an id at every second, and checks which of
// the earlier ones are still there.
func TestIDsAreKeptForOneToTwoTerms(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := tombstone.Set[int]{Keep: time.Minute}
		if s.Has(0) {
			t.Error("an empty set has 0")
		}
		for second := range 600 {
			s.Add(second)
			for id := range second + 1 {
				switch age := second - id; {
				case age <= 60 && !s.Has(id):
					t.Fatalf("after %d s, the id of %d s ago is gone", second, age)
				case age > 122 && s.Has(id):
					t.Fatalf("after %d s, the id of %d s ago is there", second, age)
				}
			}
			time.Sleep(time.Second)
		}
	})
}
