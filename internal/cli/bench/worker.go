package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// drainTime bounds the waits that are still open at the end of a run; then they are
// cancelled.
const drainTime = 2 * time.Second

// worker is one process of a run.
type worker struct {
	request // the first
	open    Open
	clients []Client
	before  int      // goroutines when nothing was open
	names   []string // of a scenario with many

	inside  atomic.Int64 // holders of the shared lock in this process
	overlap atomic.Bool

	held []Held // of Idle and Crash
}

// Work is the life of a worker process: it reads what to do from in and answers
// to out, until in ends. open makes its clients. The error is that of the
// conversation; what goes wrong with a lock is told to the other side.
func Work(ctx context.Context, in io.Reader, out io.Writer, open Open) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := newPipe(in, out)
	requests := make(chan request)
	var failed error
	go func() { // ends with in
		defer close(requests)
		defer cancel()
		for {
			var o request
			if err := p.line(&o); err != nil {
				if !errors.Is(err, io.EOF) {
					failed = err
				}
				return
			}
			select {
			case requests <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	w := &worker{open: open}
	for o := range requests {
		a, err := w.execute(ctx, o)
		if a == nil {
			a = new(response)
		}
		if w.overlap.Load() {
			err = fmt.Errorf("bench: %w, in one process", ErrOverlap)
		}
		if err != nil {
			a.Err, a.Overlap = err.Error(), errors.Is(err, ErrOverlap)
		}
		a.Records = len(a.records)
		if err := p.send(a); err != nil {
			cancel()
			return errors.Join(err, w.close())
		}
	}
	return errors.Join(failed, w.close())
}

func (w *worker) close() error {
	var errs []error
	for _, h := range w.held {
		_ = h.Unlock() // its lease may be over; the run has ended
	}
	for _, c := range w.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (w *worker) execute(ctx context.Context, o request) (*response, error) {
	switch o.Do {
	case doOpen:
		w.request = o
		w.before = runtime.NumGoroutine()
		for i := range o.Clients {
			c, err := w.open(ctx, o.Spec, Seat{o.First + i, o.Scenario.Clients})
			if err != nil {
				return nil, err
			}
			w.clients = append(w.clients, c)
		}
		for i := range o.Scenario.Names {
			w.names = append(w.names, w.own("own-", i))
		}
		if o.Spec.Fresh {
			return nil, nil
		}
		return nil, w.contend(ctx)
	case doRun:
		stop, err := profile(o.Profile, w.First)
		if err != nil {
			return nil, err
		}
		defer stop()
		return w.run(ctx, o.Start, o.End)
	case doHold:
		return w.hold(ctx)
	case doIdle:
		return w.idle(ctx, o.Start, o.End)
	case doTake:
		return w.take(ctx)
	case doOnce:
		return nil, w.once(ctx)
	case doDrop:
		err := w.held[0].Unlock()
		w.held = nil
		return nil, err
	}
	return nil, fmt.Errorf("bench: a worker cannot %q", o.Do)
}

// profile writes a CPU profile until stop; first tells processes apart.
func profile(name string, first int) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	f, err := os.Create(fmt.Sprintf("%s-%d.pprof", name, first))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// sharedName is the lock of scenarios that have one for all.
const sharedName = "shared"

// meter notes what a part of a run costs this process.
type meter struct {
	mem    runtime.MemStats
	cpu    time.Duration
	counts Counts
}

func (w *worker) meter() *meter {
	m := new(meter)
	runtime.ReadMemStats(&m.mem)
	m.counts, _ = w.counts()
	m.cpu = cpuTime()
	return m
}

// since fills an answer with what was used since the meter was read.
func (w *worker) since(m *meter, a *response) {
	a.CPU = int64(cpuTime() - m.cpu)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	a.Mallocs += float64(mem.Mallocs - m.mem.Mallocs)
	a.Bytes += float64(mem.TotalAlloc - m.mem.TotalAlloc)
	a.Counts, a.Counted = w.counts()
	a.Counts = a.Counts.less(m.counts)
}

func (w *worker) counts() (sum Counts, known bool) {
	for _, c := range w.clients {
		if counter, ok := c.(Counter); ok {
			sum, known = sum.plus(counter.Counts()), true
		}
	}
	return sum, known
}

// recordLog are the records of one goroutine, and what keeping them has allocated.
type recordLog struct {
	rs             []record
	mallocs, bytes float64
}

func (n *recordLog) add(r record) {
	if len(n.rs) == cap(n.rs) {
		n.rs = slices.Grow(n.rs, max(64, len(n.rs)))
		n.mallocs++
		n.bytes += float64(cap(n.rs) * recordSize)
	}
	n.rs = append(n.rs, r)
}

// run has all goroutines take locks from start to end. Those who wait at the
// end get their turn, for a while, so that the next run finds nobody in line.
func (w *worker) run(ctx context.Context, start, end int64) (*response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := make([]recordLog, len(w.clients)*w.Scenario.Goroutines)
	errs := make([]error, len(all))
	sleepUntil(ctx, start-int64(time.Millisecond))
	var group sync.WaitGroup
	at := w.meter()
	for i := range all {
		group.Go(func() { errs[i] = w.cycle(ctx, i, start, end, &all[i]) })
	}
	a := new(response)
	sleepUntil(ctx, start+(end-start)/2)
	a.Goroutines = float64(runtime.NumGoroutine() - w.before - len(all))
	sleepUntil(ctx, end)
	w.since(at, a) // excludes the cost of draining
	late := time.AfterFunc(drainTime, cancel)
	group.Wait()
	late.Stop()
	after, _ := w.counts()
	a.Counts = after.less(at.counts) // with the ends of what was begun
	for _, n := range all {
		a.Mallocs -= n.mallocs
		a.Bytes -= n.bytes
		a.records = append(a.records, n.rs...)
	}
	return a, errors.Join(errs...)
}

// contend has many goroutines use each client at once, each another lock.
func (w *worker) contend(ctx context.Context) error {
	var group sync.WaitGroup
	errs := make([]error, w.Scenario.Contended*len(w.clients))
	for i := range errs {
		group.Go(func() {
			client, name := w.clients[i%len(w.clients)], w.own("own-", i)
			for range 50 {
				h, err := client.Lock(ctx, name)
				if err == nil {
					err = h.Unlock()
				}
				if err != nil {
					errs[i] = fmt.Errorf("bench: contend: %w", err)
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// once has each client lock once, each another name.
func (w *worker) once(ctx context.Context) error {
	for i, c := range w.clients {
		h, err := c.Lock(ctx, w.own("once-", i))
		if err == nil {
			err = h.Unlock()
		}
		if err != nil {
			return fmt.Errorf("bench: once: %w", err)
		}
	}
	return nil
}

// cycle is one goroutine of a run.
func (w *worker) cycle(ctx context.Context, i int, start, end int64, n *recordLog) error {
	c := i / w.Scenario.Goroutines
	client, goroutine := w.clients[c], int64(w.First*w.Scenario.Goroutines+i)
	name := w.Spec.Prefix + sharedName
	if !w.Scenario.Shared {
		name = w.own("own-", int(goroutine))
	}
	sleepUntil(ctx, start)
	for next := i % w.Scenario.Goroutines; ; next += w.Scenario.Goroutines {
		if len(w.names) > 0 {
			if next >= len(w.names) {
				next = i % w.Scenario.Goroutines
			}
			name = w.names[next]
		}
		r := record{asked: now(), goroutine: goroutine, client: int64(w.First + c)}
		if r.asked >= end {
			return nil
		}
		h, err := client.Lock(ctx, name)
		if err != nil {
			if ctx.Err() != nil {
				n.add(r)
				return nil
			}
			return fmt.Errorf("bench: Lock: %w", err)
		}
		r.granted = now()
		if w.Scenario.Shared && w.inside.Add(1) != 1 {
			w.overlap.Store(true)
		}
		if w.Scenario.Work > 0 && r.granted < end {
			time.Sleep(w.Scenario.Work)
		}
		if w.Scenario.Shared {
			w.inside.Add(-1)
		}
		r.released = now()
		err = h.Unlock()
		r.done = now()
		n.add(r)
		if err != nil {
			return fmt.Errorf("bench: Unlock: %w", err)
		}
	}
}

func sleepUntil(ctx context.Context, t int64) {
	select {
	case <-time.After(time.Duration(t - now())):
	case <-ctx.Done():
	}
}
