package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestF107_UnreachablePrimaryPassesDuringElection checks that the error of an
// unreachable primary passes while the electors answer, and only then.
//
// Covers: F107 on sentinel, cluster.
func TestF107_UnreachablePrimaryPassesDuringElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h LastAnswer
		refused := driver.Errorf(driver.Unavailable, "connection refused")
		passes := func(err error) bool { _, ok := driver.IsNotReady(h.DuringElection(err)); return ok }
		if passes(refused) {
			t.Error("nobody was ever heard")
		}
		h.Note()
		for err, want := range map[error]bool{refused: true, driver.ErrClosed: false, driver.Errorf(driver.Unknown, "silence"): false,
			driver.Errorf(driver.Refused, "no"): false, driver.NotReady(time.Second, "soon"): true} {
			if got := passes(err); got != want {
				t.Errorf("%v passes: %v", err, got)
			}
		}
		if h.DuringElection(nil) != nil {
			t.Error("no error became one")
		}
		time.Sleep(electionWindow + 1)
		if passes(refused) {
			t.Error("nobody was heard lately")
		}
	})
}
