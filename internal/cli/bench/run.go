package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// The roles of implementations in the comparison.
const (
	RoleHoldfast = "holdfast"
	RolePeer     = "peer"
	RoleLimit    = "limit" // the least that could do the job, through the same client
)

// Probe looks at a server from outside.
type Probe interface {
	// CPU is the processor time that the server has used.
	CPU() (time.Duration, error)
	// Count begins to count what clients ask of the server; stop ends it.
	Count() (stop func() (Counts, error), err error)
}

// Target is an implementation in a comparison.
type Target struct {
	Spec
	Role    string
	Store   string // as shown
	Version string // of the library, as shown
	Probe   Probe  // of its server; may be nil
	// In says in which scenarios it takes part; nil is all.
	In func(Scenario) bool
}

// Config says what is run.
type Config struct {
	Scenarios []Scenario
	Targets   []Target
	Runs      int           // measured ones, at least 1; one for warming up comes before them
	Duration  time.Duration // of each run of Cycles

	// Command starts a worker: a program and its arguments, which calls Work
	// with its standard input and output. Without one, workers are in this
	// process, whose other work is then in what they cost.
	Command []string
	Open    Open // for workers in this process

	Profiles string                // a folder for CPU profiles of the last runs, one of each process; empty for none
	Progress func(Step)            // is told what begins; may be nil
	Skip     func(Scenario) string // why a scenario is not run; nil or "" runs it
}

// Step is the progress of a run.
type Step struct {
	Scenario       Scenario
	Implementation string
	Run, Of        int // 0 is the one for warming up
	Done, Steps    int // of the whole
}

// Row is the result of one implementation in one scenario.
type Row struct {
	Scenario       string            `json:"scenario"`
	Title          string            `json:"title"`
	Store          string            `json:"store"`
	Implementation string            `json:"implementation"`
	Role           string            `json:"role"`
	Version        string            `json:"version,omitempty"`
	Settings       string            `json:"settings,omitempty"`
	Figures        map[string]Spread `json:"figures"`
	Runs           []Figures         `json:"runs"`
	// Failed says why there are no figures.
	Failed string `json:"failed,omitempty"`
}

// Report is the result.
type Report struct {
	Began    time.Time         `json:"began"`
	Seconds  float64           `json:"seconds"`
	Machine  string            `json:"machine"`
	Go       string            `json:"go"`
	Runs     int               `json:"runs"`
	Duration float64           `json:"seconds_per_run"`
	Versions map[string]string `json:"versions,omitempty"` // of servers
	Rows     []Row             `json:"rows"`
	Skipped  map[string]string `json:"skipped,omitempty"` // scenarios and why
}

type runner struct {
	Config
	report      *Report
	done, steps int
}

// Run measures. It blocks for about as long as the number of scenarios times
// targets times runs times the duration, and no longer than ctx. The error is
// that of the first run that could not be made, or one that matches ErrOverlap;
// the report has what was measured before. A peer that fails, or that overlaps,
// has a row that says so, and the others go on.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Runs < 1 || cfg.Duration <= 0 {
		return nil, fmt.Errorf("bench: %d runs of %v", cfg.Runs, cfg.Duration)
	}
	r := &runner{Config: cfg, report: &Report{
		Began: time.Now().UTC().Truncate(time.Second), Machine: Machine(), Go: runtime.Version(),
		Runs: cfg.Runs, Duration: cfg.Duration.Seconds(), Skipped: map[string]string{},
	}}
	var todo []Scenario
	for _, s := range cfg.Scenarios {
		why := ""
		if cfg.Skip != nil {
			why = cfg.Skip(s)
		}
		if why != "" {
			r.report.Skipped[s.Name] = why
			continue
		}
		todo = append(todo, s)
		r.steps += len(r.targets(s)) * (r.runs(s) + 1)
	}
	began := time.Now()
	defer func() { r.report.Seconds = time.Since(began).Seconds() }()
	for _, s := range todo {
		if err := r.scenario(ctx, s); err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

// runs returns the number of runs of a scenario. A scenario with thousands of
// locks takes a single one.
func (r *runner) runs(s Scenario) int {
	if s.Kind == Idle {
		return 1
	}
	return r.Runs
}

func (r *runner) targets(s Scenario) []Target {
	var in []Target
	for _, t := range r.Targets {
		if t.In == nil || t.In(s) {
			in = append(in, t)
		}
	}
	return in
}

// entry is a target in the scenario that is run.
type entry struct {
	Target
	row         Row
	workerGroup *workerGroup
	base        Figures // counted once, not in every run
}

// scenario has the targets take turns, and each run begins with another one.
func (r *runner) scenario(ctx context.Context, s Scenario) error {
	var entries []*entry
	for _, t := range r.targets(s) {
		entries = append(entries, &entry{Target: t, base: Figures{}, row: Row{
			Scenario: s.Name, Title: s.Title, Store: t.Store, Implementation: t.Name, Role: t.Role, Version: t.Version, Settings: t.Settings,
		}})
	}
	defer func() {
		for _, e := range entries {
			if e.workerGroup != nil {
				_ = e.workerGroup.stopAll()
			}
			e.row.Figures = SpreadOf(e.row.Runs)
			r.report.Rows = append(r.report.Rows, e.row)
		}
	}()
	for run := range r.runs(s) + 1 {
		for i := range entries {
			e := entries[(i+run)%len(entries)]
			if r.Progress != nil {
				r.Progress(Step{s, e.Name, run, r.runs(s), r.done, r.steps})
			}
			r.done++
			if e.row.Failed != "" {
				continue
			}
			if err := r.turn(ctx, s, e, run); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				e.row.Failed, e.row.Runs = err.Error(), nil // also those before it
				if e.workerGroup != nil {
					_ = e.workerGroup.stopAll()
					e.workerGroup = nil
				}
				if e.Role == RoleHoldfast {
					return fmt.Errorf("bench: %s, %s on %s: %w", s.Name, e.Name, e.Store, err)
				}
			}
		}
	}
	return nil
}

// turn is one run of one target; the first one warms up.
func (r *runner) turn(ctx context.Context, s Scenario, e *entry, run int) error {
	if s.Kind == Crash {
		if run == 0 {
			return nil // there is nothing to warm
		}
		f, err := r.crash(ctx, s, e)
		if err == nil {
			e.row.Runs = append(e.row.Runs, f)
		}
		return err
	}
	if e.workerGroup == nil {
		var err error
		if e.workerGroup, err = r.startWorkers(ctx, e.Target, s); err != nil {
			return err
		}
	}
	if s.Kind == Idle {
		if run == 0 {
			return nil
		}
		f, err := r.idle(ctx, s, e)
		if err == nil {
			e.row.Runs = append(e.row.Runs, f)
		}
		return err
	}
	if run == 0 {
		if _, err := r.cycles(ctx, s, e, r.Duration/2, ""); err != nil {
			return err
		}
		return r.counted(ctx, s, e)
	}
	file := ""
	if r.Profiles != "" && run == r.Runs {
		file = filepath.Join(r.Profiles, strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(s.Name+"-"+e.Store+"-"+e.Name))
	}
	f, err := r.cycles(ctx, s, e, r.Duration, file)
	if err != nil {
		return err
	}
	for name, v := range e.base {
		f[name] = v
	}
	e.row.Runs = append(e.row.Runs, f)
	return nil
}

// counted makes a run of which only the counts are kept: looking at every
// command slows a server down.
func (r *runner) counted(ctx context.Context, s Scenario, e *entry) error {
	if e.Probe == nil {
		return nil
	}
	stop, err := e.Probe.Count()
	if err != nil {
		return err
	}
	f, err := r.cycles(ctx, s, e, r.Duration/2, "")
	counts, err2 := stop()
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if n := f["acquisitions_all"]; n > 0 {
		e.base["requests"] = counts.Requests / n
		if counts.Wakes > 0 {
			e.base["messages"] = counts.Wakes / n
		}
	}
	return nil
}

// startDelay is the time that workers have for getting ready to run.
const startDelay = 30 * time.Millisecond

// cycles is one run of cycles.
func (r *runner) cycles(ctx context.Context, s Scenario, e *entry, long time.Duration, profile string) (Figures, error) {
	before, err := cpuOf(e.Probe)
	if err != nil {
		return nil, err
	}
	start := now() + int64(startDelay)
	end := start + int64(long)
	replies, err := e.workerGroup.all(ctx, request{Do: doRun, Start: start, End: end, Profile: profile})
	if err != nil {
		return nil, err
	}
	after, err := cpuOf(e.Probe)
	if err != nil {
		return nil, err
	}
	var sum response
	for _, a := range replies {
		sum.records = append(sum.records, a.records...)
		sum.Mallocs += a.Mallocs
		sum.Bytes += a.Bytes
		sum.CPU += a.CPU
		sum.Goroutines = max(sum.Goroutines, a.Goroutines)
		sum.Counts = sum.Counts.plus(a.Counts)
		sum.Counted = sum.Counted || a.Counted
	}
	f, err := figuresOf(s, sum.records, start, end)
	if err != nil {
		return nil, err
	}
	all := 0.0
	for _, rec := range sum.records {
		if rec.granted != 0 {
			all++
		}
	}
	f["acquisitions_all"] = all
	f["goroutines"] = sum.Goroutines
	if n := f["acquisitions"]; n > 0 {
		f["allocs"], f["bytes"] = sum.Mallocs/n, sum.Bytes/n
		f["client_cpu_us"] = float64(sum.CPU) / 1e3 / n
		if e.Probe != nil {
			f["server_cpu_us"] = float64(after-before) / 1e3 / all
		}
		if sum.Counted {
			f["requests"], f["woken"] = sum.Counts.Requests/all, sum.Counts.Wakes/all
		}
	}
	return f, nil
}

func cpuOf(p Probe) (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	return p.CPU()
}
