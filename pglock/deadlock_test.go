package pglock

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// A request is the victim of a deadlock with somebody who locks rows by hand: it
// was not done, and is when asked again.
func TestF93_Deadlock(t *testing.T) {
	t.Parallel()
	url := backends.SharedPostgres(t).URL("postgres", own())
	d := openOn(t, url)
	other, looks := admin(t, url), admin(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	names := []string{"a", "b"}
	var refs []driver.Ref
	for i, name := range names {
		refs = append(refs, driver.Ref{Ticket: ticket(i, name), State: driver.Held})
		mustJoin(t, d, refs[i].Ticket, driver.Held)
	}
	deadlocks := 0
	for try := 0; deadlocks == 0 && try < 6; try++ {
		// Which of the two rows a renewal of both locks first is for the server
		// to say, so one or the other order crosses it.
		first, second := names[try%2], names[1-try%2]
		tx, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lock := func(name string) error {
			_, err := tx.Exec(ctx, "SELECT 1 FROM "+prefixOf(url)+"line WHERE name = $1 FOR UPDATE", []byte(name))
			return err
		}
		if err := lock(first); err != nil {
			t.Fatal(err)
		}
		renewed := make(chan error, 1)
		go func() {
			p, err := d.Renew(ctx, refs)
			if err == nil {
				err = p[0].Err
			}
			renewed <- err
		}()
		for waiting := 0; waiting == 0; {
			// Not in the transaction: that sees who waited when it first looked.
			err := looks.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE "+prefixOf(url)+"line%'").Scan(&waiting)
			if err != nil {
				t.Fatal(err)
			}
		}
		// Whoever began to wait first is found out by the server, after a second.
		if err := lock(second); err != nil {
			t.Logf("the other one: %v", err)
		}
		_ = tx.Rollback(ctx)
		if err := <-renewed; code(err) == "40P01" {
			deadlocks++
			if driver.ClassOf(err) != driver.NotDone {
				t.Errorf("a deadlock is %v", driver.ClassOf(err))
			}
		} else if err != nil {
			t.Errorf("no deadlock: %v", err)
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
