// Package scale measures what grows with what on a store: idle names, held locks,
// waiters on one name, idle clients. It speaks to a store through its driver, so that
// ten thousand waiters need no ten thousand processes, and through clients where the
// client is a part of the cost.
package scale

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Store is what is measured. CPU and Bytes look at its server; they are nil where
// there is none.
type Store struct {
	Name string
	URL  string

	// CPU returns the processor time that the server has used.
	CPU func() (time.Duration, error)
	// Bytes returns what the server keeps, and Kept says what that is.
	Bytes func() (float64, error)
	Kept  string
	// Pids are the server's processes, whose sockets are counted.
	Pids []int
}

// A Figure is one measured quantity.
type Figure struct {
	Name string  `json:"name"`
	Unit string  `json:"unit,omitempty"`
	Of   string  `json:"of"` // what grows: goroutines, waiters, holds, clients or names
	At   []Point `json:"at"`
}

// A Point is a figure's value with N things in the store: the median of the rounds,
// the least and the greatest.
type Point struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// A Report is all that was measured on one store.
type Report struct {
	Store    string            `json:"store"`
	Kept     string            `json:"kept,omitempty"`
	Day      string            `json:"day"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Seconds  float64           `json:"seconds"`
	Figures  []*Figure         `json:"figures"`
	// Stopped says for what grows why larger numbers were not measured.
	Stopped map[string]string `json:"stopped,omitempty"`
}

// Config says how much is measured. What grows takes the sizes in their order.
type Config struct {
	Names, Holds, Waiters, Clients []int

	// Only names what is measured: goroutines, waiters, holds, clients or names. Empty
	// means all of them.
	Only []string
	// Limit bounds the time to reach one size. A size that takes longer is not
	// measured, and none of the larger ones.
	Limit time.Duration
	// Progress reports a line of text for each step.
	Progress func(string)
}

// Defaults are the sizes of docs/scale.md.
func Defaults() Config {
	return Config{
		Names:   []int{1_000, 100_000, 1_000_000},
		Holds:   []int{1_000, 10_000, 100_000},
		Waiters: []int{10, 1_000, 10_000},
		Clients: []int{10, 100, 1_000},
		Limit:   10 * time.Minute,
	}
}

// rounds is how often a figure is taken at each size, and cycles the number of
// requests in each round.
const (
	rounds = 5
	cycles = 100
	// workers take and release side by side where only the result matters.
	workers = 64
)

// errTooLong is why larger sizes are left out.
var errTooLong = errors.New("took longer than the limit")

// run is one measurement in progress.
type run struct {
	Config
	store  Store
	report *Report
	drv    driver.Driver
	ids    atomic.Int64
	client string // of the tickets' ids
}

// Run measures a store. It blocks for minutes, and returns what it has with the first
// error.
func Run(ctx context.Context, s Store, c Config, open func(ctx context.Context, url string) (driver.Driver, error)) (*Report, error) {
	began := time.Now()
	d, err := open(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	r := &run{Config: c, store: s, drv: d, client: newClientID(),
		report: &Report{Store: s.Name, Kept: s.Kept, Day: began.UTC().Format(time.DateOnly), Stopped: map[string]string{}}}
	defer func() { r.report.Seconds = math.Round(time.Since(began).Seconds()) }()
	defer d.Close()
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		of  string
		run func(context.Context) error
	}{{"goroutines", r.load}, {"waiters", r.waiters}, {"holds", r.holds}, {"clients", r.clients}, {"names", r.names}} {
		if len(r.Only) > 0 && !slices.Contains(r.Only, part.of) {
			continue
		}
		err := part.run(ctx)
		if ctx.Err() != nil {
			return r.report, context.Cause(ctx)
		}
		if err != nil {
			r.report.Stopped[part.of] = err.Error()
			r.say("%s: %v", part.of, err)
		}
	}
	return r.report, nil
}

// warmUp sends each kind of request once: what a server keeps of the first, such as a
// script, belongs to no lock.
func (r *run) warmUp(ctx context.Context) error {
	first, second := r.ticket("scale/warm"), r.ticket("scale/warm")
	for _, t := range []*driver.Ticket{first, second} {
		if _, err := r.drv.Join(ctx, t, true); err != nil {
			return err
		}
	}
	if err := r.renew(ctx, []driver.Ref{{Ticket: first, State: driver.Held}, {Ticket: second, State: driver.Waiting}}); err != nil {
		return err
	}
	return errors.Join(r.leave(ctx, second, driver.Waiting), r.leave(ctx, first, driver.Held))
}

func (r *run) say(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf("%s: %s", r.store.Name, fmt.Sprintf(format, args...)))
	}
}

// add notes a figure at n. Without values it notes nothing.
func (r *run) add(of, name, unit string, n int, values ...float64) {
	if len(values) == 0 {
		return
	}
	i := slices.IndexFunc(r.report.Figures, func(f *Figure) bool { return f.Of == of && f.Name == name })
	if i < 0 {
		i = len(r.report.Figures)
		r.report.Figures = append(r.report.Figures, &Figure{Name: name, Unit: unit, Of: of})
	}
	slices.Sort(values)
	p := Point{n, values[len(values)/2], values[0], values[len(values)-1]}
	r.report.Figures[i].At = append(r.report.Figures[i].At, p)
	r.say("%d %s: %s %.4g %s (%.4g to %.4g)", n, of, name, p.Median, unit, p.Min, p.Max)
}

// cpu returns the server's processor time, or 0 without a server.
func (r *run) cpu() time.Duration {
	if r.store.CPU == nil {
		return 0
	}
	d, err := r.store.CPU()
	if err != nil {
		return 0
	}
	return d
}

// bytes returns what the server keeps, or 0 where that cannot be read.
func (r *run) bytes() float64 {
	if r.store.Bytes == nil {
		return 0
	}
	b, err := r.store.Bytes()
	if err != nil {
		r.say("bytes: %v", err)
		return 0
	}
	return b
}

// each calls f for the numbers from first to end, workers at a time, and returns the
// first error. It stops at the limit, with errTooLong.
func (r *run) each(ctx context.Context, first, end int, f func(ctx context.Context, i int) error) error {
	return r.eachBy(ctx, workers, first, end, f)
}

func (r *run) eachBy(ctx context.Context, workers, first, end int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Limit, errTooLong)
	defer cancel()
	var next atomic.Int64
	next.Store(int64(first))
	errs := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= end {
					return
				}
				if errs[w] = f(ctx, i); errs[w] != nil {
					cancel()
					return
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// timed calls f and returns how long it took, in microseconds.
func timed(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return float64(time.Since(began)) / float64(time.Microsecond), err
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
