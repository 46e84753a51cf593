package sqlqueue_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// lossyDB is a site whose answers are lost while lost is set.
type lossyDB struct {
	*plainDB
	lose bool
}

func (f *lossyDB) Auto(ctx context.Context, s *sqlqueue.Stmt) error {
	return f.loseAnswer(f.plainDB.Auto(ctx, s))
}

func (f *lossyDB) Tx(ctx context.Context, do func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error)) error {
	return f.loseAnswer(f.plainDB.Tx(ctx, do))
}

func (f *lossyDB) loseAnswer(err error) error {
	if err == nil && f.lose {
		err = driver.Errorf(driver.Unknown, "the answer got lost")
	}
	return err
}

func (f *lossyDB) Missing(error) bool                   { return false }
func (f *lossyDB) CreateMarks(context.Context) error    { return nil }
func (f *lossyDB) Create(context.Context) error         { return nil }
func (f *lossyDB) Migrate(context.Context, int64) error { return nil }

// TestF1_LostAnswerRenewsOnlyItsQueue checks that after a lost answer the core
// renews its waiting tickets only if one of them waits in the queue of that
// request.
func TestF1_LostAnswerRenewsOnlyItsQueue(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	site := &lossyDB{plainDB: f.db}
	tables := sqlqueue.NewTables(f.Queues, site, "me")
	requests := tables.Requests()
	defer tables.Stop()
	tables.PushesArrive.Store(true)
	tables.SweepLock.Lock() // no sweeps
	defer tables.SweepLock.Unlock()
	asked := 0
	if err := tables.Watch(func(id string, _ driver.Status) {
		if id == "" {
			asked++
		}
	}); err != nil {
		t.Fatal(err)
	}
	join := func(name string, want driver.State) *driver.Ticket {
		t.Helper()
		tk := f.ticket(name, 1, 1)
		if p, err := requests.Join(ctx, tk, true); err != nil || p.State != want {
			t.Fatalf("%+v, %v", p, err)
		}
		return tk
	}
	lose := func(what string, want int, do func()) {
		t.Helper()
		before := asked
		site.lose = true
		do()
		site.lose = false
		if asked-before != want {
			t.Errorf("%s: asked %d times, want %d", what, asked-before, want)
		}
	}
	holder, waiter := join("n", driver.Held), join("n", driver.Waiting)
	other := join("other", driver.Held)
	lose("a renewal of another queue", 0, func() { _, _ = requests.Renew(ctx, refs(driver.Held, other)) })
	lose("a join of another queue", 0, func() { _, _ = requests.Join(ctx, f.ticket("third", 1, 1), true) })
	lose("a break in another queue", 0, func() { _ = requests.Break(ctx, "other", "nobody") })
	lose("a renewal of both", 1, func() { _, _ = requests.Renew(ctx, refs(driver.Held, other, holder)) })
	lose("a look at its queue", 1, func() { _, _ = requests.Inspect(ctx, "n") })
	lose("a leave from its queue", 1, func() { _, _ = requests.Leave(ctx, refs(driver.Held, holder)) })
	if ps, err := requests.Renew(ctx, refs(driver.Waiting, waiter)); err != nil || ps[0].State != driver.Held {
		t.Fatalf("%+v, %v", ps, err)
	}
	lose("a look at a queue in which none waits any more", 0, func() { _, _ = requests.Inspect(ctx, "n") })
}
