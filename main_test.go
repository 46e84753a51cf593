package holdfast

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails when a goroutine outlives the tests. Find alone waits for less
// than a second; on a busy machine, a goroutine may need longer for its end.
func TestMain(m *testing.M) {
	status := m.Run()
	for limit := time.Now().Add(30 * time.Second); status == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(limit) {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}
