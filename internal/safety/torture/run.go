package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// run is the state of one run.
type run struct {
	Config
	began   time.Time
	plan    []Step
	clients sync.WaitGroup
	healing sync.WaitGroup // faults of requests that are ending

	mu       sync.Mutex
	register checker.Register
	checker  *checker.Checker
	history  *checker.Writer
	lost     error // the error of writing the history
	start0   int64
	probed   int64
	met      int64
	unhealed error // faults of requests that did not end
	troubled int64 // the time at which a client's request last failed
	untidy   bool  // a client could not confirm that it had left every place
	phase    string
	active   []string

	procs []*process // by number; only the goroutine of Run changes it
}

// Run tortures a store. It blocks for the Duration and some TTLs more. If ctx
// ends, Run heals the faults and judges the history so far: a run that was cut
// short has a report as well. An error means that there is nothing to judge: a
// bad Config, a store that cannot be reached, clients that do not start.
func Run(ctx context.Context, cfg Config) (Report, error) {
	own, err := cfg.check(ctx)
	if err != nil {
		return Report{}, err
	}
	defer own.Close()
	if cfg.Begun != nil {
		cfg.Begun(cfg)
	}
	r := &run{Config: cfg, plan: cfg.Plan(), phase: "start"}
	r.checker = checker.NewChecker(checker.Rules{
		TTL: r.TTL, Fair: r.traits.Fair, Tokens: r.traits.Fencing, Slack: r.Slack, Takes: r.maxProbeWait(), Exposed: r.Exposed,
		// A process that is stopped in the middle of a transaction blocks the
		// file.
		Contagious: r.traits.PushLocal,
	})
	if r.History != nil {
		r.history = checker.NewWriter(r.History)
	}
	defer r.clients.Wait()
	defer r.abort()
	if err := r.begin(); err != nil {
		return Report{}, err
	}
	done := make(chan struct{})
	var side sync.WaitGroup
	side.Go(func() { r.judge(done) })
	err = r.torture(ctx)
	if err == nil {
		err = r.drain()
	}
	if err == nil {
		err = r.probe(own)
	}
	close(done)
	side.Wait()
	if err != nil {
		return Report{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost != nil {
		return Report{}, fmt.Errorf("torture: the history: %w", r.lost)
	}
	r.checker.Finish()
	return r.reportLocked(), nil
}

// maxProbeWait is the longest time for which a fresh process may wait for a
// name. An expired ticket blocks the name for its TTL and 5 %, and for as long
// as the store's expiry is late; a second is added for the requests.
func (r *run) maxProbeWait() time.Duration {
	return r.TTL + r.TTL/20 + r.traits.Granularity + time.Second
}

// maxWait returns the time after which the run gives up waiting for a client.
func (r *run) maxWait() time.Duration {
	if r.patient > 0 {
		return r.patient
	}
	return 30*time.Second + 5*r.TTL + r.Slack
}

// begin starts the clients.
func (r *run) begin() error {
	for p := range r.Processes {
		x, err := r.start(p, 0, false)
		if err != nil {
			return err
		}
		r.procs = append(r.procs, x)
	}
	for _, x := range r.procs {
		if err := r.await(x, x.hello); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began, r.start0, r.phase = time.Now(), checker.Now(), "run"
	return nil
}

// await waits until a client has sent a message.
func (r *run) await(x *process, said <-chan struct{}) error {
	limit := time.NewTimer(2*r.maxWait() + time.Duration(len(r.names))*(r.maxProbeWait()+r.Slack+time.Second))
	defer limit.Stop()
	select {
	case <-said:
		return nil
	case <-x.gone:
		select {
		case <-said:
			return nil
		default:
		}
		why := x.broke
		if why == "" {
			why = strings.TrimSpace(x.said.String())
		}
		return fmt.Errorf("torture: client %d ended: %s", x.p, why)
	case <-limit.C:
		return fmt.Errorf("torture: client %d does not answer: %s", x.p, x.said.String())
	}
}

// abort ends the remaining clients.
func (r *run) abort() {
	for _, x := range r.procs {
		x.abort()
		_ = x.in.Close()
	}
}

// add adds an event to the history and the checker.
func (r *run) add(e checker.Event) {
	if e.What == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(e)
}

// addLocked is add with r.mu held.
func (r *run) addLocked(e checker.Event) {
	if r.history != nil && r.lost == nil {
		r.lost = r.history.Copy(e)
	}
	if e.What == checker.Probe {
		r.probed = max(r.probed, e.Gap)
	}
	if e.What == checker.Upset || e.What == checker.Done && e.Err != "" {
		r.troubled = e.T
	}
	r.checker.Add(e)
}

// judge judges in windows, and reports progress.
func (r *run) judge(done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		r.mu.Lock()
		if n%2 == 0 {
			r.checker.Check()
		}
		bad, more := r.checker.Violations()
		s := Snapshot{Elapsed: time.Since(r.began), Phase: r.phase, Active: slices.Clone(r.active),
			Stats: r.checker.Stats(), Violations: len(bad) + more}
		s.Stats.Faults, s.Stats.Exposed = maps.Clone(s.Stats.Faults), maps.Clone(s.Stats.Exposed)
		r.mu.Unlock()
		if r.Progress != nil {
			r.Progress(s)
		}
	}
}

// drain lets the clients finish. All waiting calls must get their turn.
func (r *run) drain() error {
	r.mu.Lock()
	r.phase = "drain"
	r.mu.Unlock()
	for _, x := range r.procs {
		x.send(order{Do: "drain"})
	}
	limit := time.NewTimer(r.maxWait())
	defer limit.Stop()
	for _, x := range r.procs {
		select {
		case <-x.bye:
		case <-x.gone:
			select {
			case <-x.bye:
			default:
				return fmt.Errorf("torture: client %d ended by itself: %s", x.p, strings.TrimSpace(x.broke+" "+x.said.String()))
			}
		case <-limit.C:
			r.add(checker.Event{T: checker.Now(), What: checker.Stuck, P: x.p, K: x.k,
				Text: fmt.Sprintf("calls of process %d had not ended %v after the last fault", x.p, r.maxWait())})
			x.abort()
			limit.Reset(time.Second)
		}
		_ = x.in.Close()
		<-x.gone
	}
	r.procs = nil
	return nil
}

// probe lets a fresh client take each name, and reads the places and names that
// the store still has.
func (r *run) probe(own *holdfast.Client) error {
	r.mu.Lock()
	r.phase = "probe"
	r.mu.Unlock()
	if err := r.leaks(own); err != nil {
		return err
	}
	x, err := r.start(r.Processes, 0, true)
	if err != nil {
		return err
	}
	r.procs = append(r.procs, x)
	if err := r.await(x, x.bye); err != nil {
		return err
	}
	_ = x.in.Close()
	<-x.gone
	ctx, stop := context.WithTimeout(context.Background(), r.maxProbeWait()+r.maxWait())
	defer stop()
	var left map[string]string
	for end := time.Now().Add(r.maxProbeWait() + r.Slack); ; time.Sleep(50 * time.Millisecond) {
		if left, err = r.residue(ctx, own); err != nil {
			return err
		}
		if len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	r.residues(left)
	return nil
}

// leaks reads the places that the store still has if all clients have closed
// without error, none was killed recently, and the store was neither disturbed
// nor too slow to answer: then no place has to expire first.
func (r *run) leaks(own *holdfast.Client) error {
	for _, s := range r.plan {
		if (s.Kind == Kill || r.Config.fault(s.Kind) != nil) && s.end() > r.Duration-r.maxProbeWait() {
			return nil
		}
	}
	r.mu.Lock()
	untidy := r.untidy || checker.Now()-r.troubled < int64(r.maxProbeWait())
	r.mu.Unlock()
	if untidy {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), r.maxWait())
	defer stop()
	left, err := r.residue(ctx, own)
	r.residues(left)
	return err
}

func (r *run) residues(left map[string]string) {
	for name, what := range left {
		r.add(checker.Event{T: checker.Now(), What: checker.Residue, P: r.Processes, Name: name, Text: what})
	}
}

// residue returns the places of the run that the store still has. It tries
// again if an idle connection was cut, or if one of several members does not
// answer yet after a split: the next request goes to another.
func (r *run) residue(ctx context.Context, own *holdfast.Client) (left map[string]string, err error) {
	for {
		one, stop := context.WithTimeout(ctx, look)
		left, err = r.readResidue(one, own)
		stop()
		if err == nil || ctx.Err() != nil {
			return left, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// look is the time limit for reading all names once.
const look = 5 * time.Second

// readResidue reads the places and names once.
func (r *run) readResidue(ctx context.Context, own *holdfast.Client) (map[string]string, error) {
	left := make(map[string]string)
	for name, err := range own.Names(ctx, "") {
		if err != nil {
			return nil, err
		}
		left[name] = "the name"
	}
	for _, n := range r.names {
		line, err := own.Inspect(ctx, n.name)
		if err != nil {
			return nil, err
		}
		if len(line.Holders)+len(line.Waiters) == 0 {
			continue
		}
		text := fmt.Sprintf("%d held, %d waiting:", len(line.Holders), len(line.Waiters))
		for _, t := range slices.Concat(line.Holders, line.Waiters) {
			text += fmt.Sprintf(" since %v by process %d with %v left;", t.Holder.Since.Format(time.TimeOnly), t.Holder.PID, t.Left)
		}
		left[n.name] = text
	}
	return left, nil
}

// reportLocked returns the report at the end of a run.
func (r *run) reportLocked() Report {
	s := r.checker.Stats()
	rep := Report{
		Seed: r.Seed, Seconds: time.Since(r.began).Round(time.Millisecond).Seconds(),
		Calls: s.Calls, Grants: s.Grants, Released: s.Released, Timeouts: s.Timeouts, Busy: s.Busy, Errors: s.Errors,
		Unknown: s.Unknown, Lost: s.Lost, Faults: s.Faults, Requests: r.met, Overlaps: s.Overlaps,
		Overlap: s.LongestOverlap.Round(time.Microsecond).Seconds(), Exposed: s.Exposed,
		Wait: s.LongestWait.Round(time.Millisecond).Seconds(), Probe: time.Duration(r.probed).Round(time.Millisecond).Seconds(),
		Writes: s.Writes, Stale: s.Stale, Corrupted: r.register.Corrupted(), Ordered: s.Ordered, Slices: s.Slices, Repeat: r.Repeat,
		Violations: []string{},
	}
	bad, more := r.checker.Violations()
	rep.More = more
	for _, v := range bad {
		text := r.checker.Describe(v)
		for _, step := range stepsAround(r.plan, time.Duration(v.At-r.start0), r.TTL) {
			text += "    fault " + step.String() + "\n"
		}
		rep.Violations = append(rep.Violations, fmt.Sprintf("%s    seed %d; again: %s\n", text, r.Seed, r.Repeat))
	}
	return rep
}
