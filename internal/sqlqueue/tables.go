package sqlqueue

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
)

// Tables are the common part of the drivers of databases on a server, apart
// from [Requests]: tables that are created where they are missing; pushes to
// this client, and its pace without them; sweeps; and the work that Close waits
// for.
//
// Order of locks: a sweep holds SweepLock while it sends requests. mu is the
// innermost lock: nothing is sent, and no other lock is taken, under it.
type Tables struct {
	Queues   *Queues
	Database Database

	// Name is the address of this client. It is unique.
	Name string
	// PushesArrive says that pushes of other clients reach this one.
	PushesArrive atomic.Bool
	// SweepLock is held while a sweep reads queues. Tests hold it to keep
	// sweeps out.
	SweepLock sync.Mutex

	ready     atomic.Bool // the tables exist
	preparing chan struct{}
	id        atomic.Pointer[string] // the id of the tables
	notify    atomic.Pointer[func(string, driver.Status)]
	waiters   sync.Map // waiters by the ids of their tickets

	ctx        context.Context // ends with Stop
	cancel     context.CancelFunc
	mu         sync.Mutex // orders Go before or after Stop
	goroutines sync.WaitGroup
	stopped    atomic.Bool

	sweeper *Sweeper
	sweptTo []byte // where the last sweep ended
}

// Database is a database in which the tables are, or are to be created.
type Database interface {
	DB
	// Missing reports whether an error of a request means that a table is
	// missing.
	Missing(err error) bool
	// Create creates the tables. Other clients may be about to do the same.
	Create(ctx context.Context) error
	// CreateMarks creates the table of marks, see [Queues.MarkSchema]. Other
	// clients may be about to do the same.
	CreateMarks(ctx context.Context) error
	// Migrate brings the tables from an earlier layout to that of the Queues,
	// see [Queues.Changes]. Other clients may be about to do the same.
	Migrate(ctx context.Context, from int64) error
}

// NewTables returns the Tables for the client with the address name, on the
// queues of a database. It sends nothing.
func NewTables(queues *Queues, database Database, name string) *Tables {
	s := &Tables{Queues: queues, Database: database, Name: name, preparing: make(chan struct{}, 1), sweptTo: RandomKey()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.sweeper = NewSweeper(s.sweep, s.Go, s.ctx.Done())
	return s
}

// Requests returns the requests on the tables.
func (s *Tables) Requests() Requests { return Requests{s} }

// Stop ends the context of [Tables.Context], waits for the functions that
// [Tables.Go] runs, and reports whether this was the first call.
func (s *Tables) Stop() (first bool) {
	s.mu.Lock()
	first = s.stopped.CompareAndSwap(false, true)
	s.mu.Unlock()
	s.cancel()
	s.goroutines.Wait()
	return first
}

// Context returns a context that ends with Stop.
func (s *Tables) Context() context.Context { return s.ctx }

// Stopped reports whether Stop was called.
func (s *Tables) Stopped() bool { return s.stopped.Load() }

// Go runs f on a goroutine that Stop waits for. After Stop it returns false and
// does not run f.
func (s *Tables) Go(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped.Load() {
		return false
	}
	s.goroutines.Go(f)
	return true
}

// CheckOpen returns the error of a request that must not begin: the driver is
// closed, or ctx has ended.
func (s *Tables) CheckOpen(ctx context.Context) error {
	if s.stopped.Load() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// Begin calls CheckOpen, and then Prepare.
func (s *Tables) Begin(ctx context.Context) error {
	if err := s.CheckOpen(ctx); err != nil {
		return err
	}
	return s.Prepare(ctx)
}

// Prepare makes sure that the tables exist and have this layout. It asks the
// server at the first call, and after Forget.
func (s *Tables) Prepare(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	// Only one call asks at a time; the others wait within their own contexts.
	select {
	case s.preparing <- struct{}{}:
		defer func() { <-s.preparing }()
	case <-ctx.Done():
		return driver.Before(ctx)
	}
	if s.ready.Load() {
		return nil
	}
	found, err := s.lookUp(ctx)
	if s.Database.Missing(err) || err == nil && found == (StoreRow{}) {
		if err = s.Database.Create(ctx); err == nil {
			found, err = s.lookUp(ctx)
		}
	}
	layout := s.Queues.Layout()
	if err == nil && found.Layout >= 1 && found.Layout < layout {
		if err = s.Database.Migrate(ctx, found.Layout); err == nil {
			found, err = s.lookUp(ctx)
		}
	}
	switch {
	case err != nil:
		return err
	case found.Layout > layout:
		return driver.Errorf(driver.Refused, "a later version of Holdfast made the tables: their layout is %d, this version knows %d; upgrade this program first", found.Layout, layout)
	case found.Layout != layout:
		return driver.Errorf(driver.Refused, "the tables of Holdfast have no layout of this version: %d", found.Layout)
	}
	s.id.Store(&found.Boot)
	s.ready.Store(true)
	return nil
}

func (s *Tables) lookUp(ctx context.Context) (found StoreRow, err error) {
	err = s.Database.Auto(ctx, s.Queues.Store(&found))
	return found, err
}

// Ready reports whether the tables were found.
func (s *Tables) Ready() bool { return s.ready.Load() }

// Forget makes the next request check the tables again: somebody dropped one.
func (s *Tables) Forget() { s.ready.Store(false) }

// ID returns the text that was written when the tables were created. It must be
// called only after Prepare.
func (s *Tables) ID() string { return *s.id.Load() }

// hasTickets advances a queue and reports whether it has tickets then. A
// foreign row has none.
func (s *Tables) hasTickets(ctx context.Context, name string) (bool, error) {
	hasTickets, pushes, err := s.Queues.HasTickets(ctx, s.Database, name)
	s.deliver(pushes, err, name)
	if Foreign(err) {
		return false, nil
	}
	return err == nil && hasTickets, err
}

// EachName implements [driver.Driver.Names] on the pages of [Queues.Names]:
// page reads one page, and hasTickets examines a queue in which no ticket is
// known to be alive.
func EachName(page func(after []byte) ([]Named, []byte, error), hasTickets func(name string) (bool, error)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var after []byte
		for {
			found, next, err := page(after)
			for i := 0; err == nil && i < len(found); i++ {
				living := true
				if found[i].Quiet {
					living, err = hasTickets(found[i].Name)
				}
				if living && err == nil && !yield(found[i].Name, nil) {
					return
				}
			}
			if err != nil {
				yield("", err)
				return
			}
			if next == nil {
				return
			}
			after = next
		}
	}
}
