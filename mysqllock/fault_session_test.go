package mysqllock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline/linetest"
)

// The last token there is.
func TestF67_LastToken(t *testing.T) {
	linetest.LastToken(t, openOn(t, backends.SharedMariaDB(t).URL("holdfast", own())))
}

// The statement in which a client's bell sleeps is killed again and again, so
// that GET_LOCK answers neither yes nor no. Nobody holds by such a lock, so that
// nothing can go wrong but that a waiter is not woken, and it is.
func TestF103_NamedLockWithoutAnswer(t *testing.T) {
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d, e := openOn(t, url), openOn(t, url)
	woken := make(chan string, 100)
	if err := e.Watch(context.Background(), func(id string, _ driver.Place) {
		if id != "" {
			woken <- id
		}
	}); err != nil {
		t.Fatal(err)
	}
	killed := 0
	for i := range 5 {
		a, b := ticket(2*i, "n"), ticket(2*i+1, "n")
		mustJoin(t, d, a, driver.Held)
		mustJoin(t, e, b, driver.Waiting)
		if at := s.Value(t, fmt.Sprintf("SELECT COALESCE(is_used_lock('%s'), 0)", e.r.Name)); at != 0 {
			s.Exec(t, fmt.Sprintf("KILL QUERY %d", at))
			killed++
		}
		mustLeave(t, d, a)
		select {
		case id := <-woken:
			if id != b.ID {
				t.Errorf("told %q, want %q", id, b.ID)
			}
		case <-time.After(200 * time.Millisecond): // not yet: it asks
			if p := mustRenew(t, e, b); p.State != driver.Held {
				t.Errorf("the waiter is %v", p.State)
			}
		}
		mustLeave(t, e, b)
	}
	if killed == 0 {
		t.Error("no statement was killed")
	}
}
