package sqlline

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Remote is what the drivers of databases on a server share: the requests of
// [driver.Driver], on tables that are made where they are missing; the pushes
// to this client, and its pace without them; the sweeps; and what Close waits
// for. Its methods that have the names of the seam's do what that says of
// them.
type Remote struct {
	Lines *Lines
	Site  Site

	// Name is the address of this client. Nobody else has it.
	Name string
	// Hears says that pushes of other clients arrive.
	Hears atomic.Bool
	// Sweeper is held while a sweep runs.
	Sweeper sync.Mutex

	ready     atomic.Bool // the tables are there
	preparing chan struct{}
	id        atomic.Pointer[string] // of the tables
	moved     atomic.Pointer[func(string, driver.Place)]
	unheard   sync.Map // ids of tickets that wait under an address that nobody tells

	ctx    context.Context // ends with Shut
	cancel context.CancelFunc
	mu     sync.Mutex // guards work against Shut
	work   sync.WaitGroup
	closed atomic.Bool
	joins  atomic.Int64
	swept  []byte // where the last sweep ended
}

// Site is a database with the tables, or where they are to be.
type Site interface {
	DB
	// Missing says whether an error of a request means that a table is not
	// there.
	Missing(err error) bool
	// Create makes the tables. Others may be about to do the same.
	Create(ctx context.Context) error
	// Migrate brings the tables from an earlier layout to that of the lines,
	// see [Lines.Changes]. Others may be about to do the same.
	Migrate(ctx context.Context, from int64) error
}

// NewRemote returns the requests of a client with an address, on the lines of a
// site. It sends nothing.
func NewRemote(lines *Lines, site Site, name string) *Remote {
	r := &Remote{Lines: lines, Site: site, Name: name, preparing: make(chan struct{}, 1), swept: RandomKey()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.joins.Store(SweepEvery - 1)
	return r
}

// Join is [driver.Driver.Join].
func (r *Remote) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Place, error) {
	if err := r.Begin(ctx); err != nil {
		return driver.Place{}, err
	}
	address := r.address()
	p, pushes, err := r.Lines.Join(ctx, r.Site, t, address, wait)
	r.after(pushes, err)
	if err != nil {
		return driver.Place{}, err
	}
	if p.State == driver.Waiting && address != r.Name {
		r.unheard.Store(t.ID, struct{}{})
	}
	r.sweepSoon()
	return r.paced(t, p), nil
}

// Renew is [driver.Driver.Renew].
func (r *Remote) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return r.batch(ctx, refs, r.Lines.Renew)
}

// Leave is [driver.Driver.Leave].
func (r *Remote) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	places, err := r.batch(ctx, refs, r.Lines.Leave)
	for _, ref := range refs {
		r.unheard.Delete(ref.ID)
	}
	return places, err
}

func (r *Remote) batch(ctx context.Context, refs []driver.Ref, do func(context.Context, DB, []driver.Ref) ([]driver.Place, []Push)) ([]driver.Place, error) {
	if err := r.Begin(ctx); err != nil {
		return nil, err
	}
	places, pushes := do(ctx, r.Site, refs)
	var err error
	for i, p := range places {
		if p.Err != nil && err == nil {
			err = p.Err
		}
		places[i] = r.paced(refs[i].Ticket, p)
	}
	r.after(pushes, err)
	return places, nil
}

// Inspect is [driver.Driver.Inspect].
func (r *Remote) Inspect(ctx context.Context, name string) (driver.Line, error) {
	if err := r.Begin(ctx); err != nil {
		return driver.Line{}, err
	}
	line, pushes, err := r.Lines.Inspect(ctx, r.Site, name)
	r.after(pushes, err)
	if err != nil {
		return driver.Line{}, err
	}
	return line, nil
}

// Names is [driver.Driver.Names].
func (r *Remote) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return EachName(func(after []byte) ([]Named, []byte, error) {
		if err := r.Begin(ctx); err != nil {
			return nil, nil, err
		}
		return r.Lines.Names(ctx, r.Site, after, prefix)
	}, func(name string) (bool, error) { return r.lives(ctx, name) })
}

// Break is [driver.Driver.Break].
func (r *Remote) Break(ctx context.Context, name, ticketID string) error {
	if err := r.Begin(ctx); err != nil {
		return err
	}
	pushes, err := r.Lines.Break(ctx, r.Site, name, ticketID)
	r.after(pushes, err)
	return err
}

// Shut ends what [Remote.Goes] runs, and waits for that. It says whether this
// was the first call.
func (r *Remote) Shut() (first bool) {
	r.mu.Lock()
	first = r.closed.CompareAndSwap(false, true)
	r.mu.Unlock()
	r.cancel()
	r.work.Wait()
	return first
}

// Life returns a context that ends with Shut.
func (r *Remote) Life() context.Context { return r.ctx }

// Closed says whether Shut was called.
func (r *Remote) Closed() bool { return r.closed.Load() }

// Goes runs f on a goroutine, and Shut waits for it. On a client that was shut
// it does not, and says so.
func (r *Remote) Goes(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return false
	}
	r.work.Go(f)
	return true
}

// Before is what every request checks first.
func (r *Remote) Before(ctx context.Context) error {
	if r.closed.Load() {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// Begin is Before, and sees to it that the tables are there.
func (r *Remote) Begin(ctx context.Context) error {
	if err := r.Before(ctx); err != nil {
		return err
	}
	return r.Prepare(ctx)
}

// Prepare sees to it that the tables are there and of this layout. It asks the
// server at the first call, and after Forget.
func (r *Remote) Prepare(ctx context.Context) error {
	if r.ready.Load() {
		return nil
	}
	// One at a time, and each within its own context.
	select {
	case r.preparing <- struct{}{}:
		defer func() { <-r.preparing }()
	case <-ctx.Done():
		return driver.Before(ctx)
	}
	if r.ready.Load() {
		return nil
	}
	found, err := r.lookUp(ctx)
	if r.Site.Missing(err) || err == nil && found == (Found{}) {
		if err = r.Site.Create(ctx); err == nil {
			found, err = r.lookUp(ctx)
		}
	}
	layout := r.Lines.Layout()
	if err == nil && found.Layout >= 1 && found.Layout < layout {
		if err = r.Site.Migrate(ctx, found.Layout); err == nil {
			found, err = r.lookUp(ctx)
		}
	}
	switch {
	case err != nil:
		return err
	case found.Layout > layout:
		return driver.Errorf(driver.Refused, "a later version of Holdfast made the tables: their layout is %d, this version knows %d", found.Layout, layout)
	case found.Layout != layout:
		return driver.Errorf(driver.Refused, "the tables of Holdfast have no layout of this version: %d", found.Layout)
	}
	r.id.Store(&found.Boot)
	r.ready.Store(true)
	return nil
}

func (r *Remote) lookUp(ctx context.Context) (found Found, err error) {
	err = r.Site.Auto(ctx, r.Lines.Store(&found))
	return found, err
}

// Ready says whether the tables were found.
func (r *Remote) Ready() bool { return r.ready.Load() }

// Forget makes the next request look for the tables again: somebody dropped
// one.
func (r *Remote) Forget() { r.ready.Store(false) }

// ID is what was written when the tables were made. It is there after Prepare.
func (r *Remote) ID() string { return *r.id.Load() }

// SweepEvery is how many joins there are between two sweeps.
const SweepEvery = 16

// sweepTime bounds a sweep.
const sweepTime = 5 * time.Second

// sweepSoon starts a sweep if it is time for one and none is running.
func (r *Remote) sweepSoon() {
	if r.joins.Add(1) < SweepEvery || !r.Sweeper.TryLock() {
		return
	}
	r.joins.Store(0)
	if !r.Goes(func() { defer r.Sweeper.Unlock(); r.sweep() }) {
		r.Sweeper.Unlock()
	}
}

// sweep removes what is of no use any more, a few rows at a time. Its errors
// are of no consequence: there is always a next one.
func (r *Remote) sweep() {
	ctx, cancel := context.WithTimeout(r.ctx, sweepTime)
	defer cancel()
	next, names, err := r.Lines.Sweep(ctx, r.Site, r.swept)
	if err != nil {
		return
	}
	r.swept = next
	for _, name := range names {
		if _, err := r.lives(ctx, name); err != nil {
			return
		}
	}
	if s, ok := r.Site.(interface{ Swept(context.Context) }); ok {
		s.Swept(ctx)
	}
}

// lives advances a line and says whether it has tickets then. A row that is
// not ours has none.
func (r *Remote) lives(ctx context.Context, name string) (bool, error) {
	lives, pushes, err := r.Lines.Lives(ctx, r.Site, name)
	r.after(pushes, err)
	if Foreign(err) {
		return false, nil
	}
	return err == nil && lives, err
}

// RandomKey is where the sweeps of a process begin: processes that end after
// one lock must not all look at the same lines.
func RandomKey() []byte {
	key := make([]byte, 8)
	for i := range key {
		key[i] = byte(rand.Uint32())
	}
	return key
}

// EachName is [driver.Driver.Names] on the pages of [Lines.Names]: page asks
// for one, and lives for a line in which nobody may live.
func EachName(page func(after []byte) ([]Named, []byte, error), lives func(name string) (bool, error)) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var after []byte
		for {
			found, next, err := page(after)
			for i := 0; err == nil && i < len(found); i++ {
				living := true
				if found[i].Quiet {
					living, err = lives(found[i].Name)
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
