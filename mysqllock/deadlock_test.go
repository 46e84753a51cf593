package mysqllock

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// A request is the victim of a deadlock with somebody who locks rows by hand: it
// was not done, and is when asked again.
func TestF93_Deadlock(t *testing.T) {
	t.Parallel()
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	line := prefixOf(url) + "line"
	d := openOn(t, url)
	db := poolOf(t, url, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	first, second := "a", "b" // as a renewal of both locks them
	if bytes.Compare(sqlline.Key(first), sqlline.Key(second)) > 0 {
		first, second = second, first
	}
	var refs []driver.Ref
	for i, name := range []string{first, second} {
		refs = append(refs, driver.Ref{Ticket: ticket(i, name), State: driver.Held})
		mustJoin(t, d, refs[i].Ticket, driver.Held)
	}
	weight := prefixOf(url) + "weight"
	s.Exec(t, "CREATE TABLE "+weight+" (k int PRIMARY KEY)")
	deadlocks := 0
	for try := 0; deadlocks == 0 && try < 6; try++ { // on a busy machine the wait may end first
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		exec := func(query string, args ...any) {
			if _, err := tx.Exec(query, args...); err != nil {
				t.Logf("the other one: %s: %v", query, err)
			}
		}
		// The one who has done less is the victim.
		for i := range 20 {
			exec("INSERT INTO "+weight+" VALUES (?)", i)
		}
		exec("SELECT k FROM "+line+" WHERE k = ? FOR UPDATE", sqlline.Key(second))
		renewed := make(chan error, 1)
		go func() {
			p, err := d.Renew(ctx, refs)
			if err == nil {
				err = p[0].Err
			}
			renewed <- err
		}()
		for end := time.Now().Add(rowPatience * time.Second); time.Now().Before(end); {
			if s.Value(t, "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE ?", "%"+line+"%") > 0 {
				break
			}
		}
		exec("SELECT k FROM "+line+" WHERE k = ? FOR UPDATE", sqlline.Key(first))
		_ = tx.Rollback()
		err = <-renewed
		if code(err) == 1213 {
			deadlocks++
		}
		if err != nil && driver.ClassOf(err) != driver.NotDone {
			t.Errorf("class %v: %v", driver.ClassOf(err), err)
		}
		for _, ref := range refs {
			if p := mustRenew(t, d, ref.Ticket); p.State != driver.Held {
				t.Errorf("afterwards the ticket is %v", p.State)
			}
		}
	}
	if deadlocks == 0 {
		t.Error("there was no deadlock")
	}
}
