//go:build unix

package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
)

// progress is the line on a terminal that shows the progress of torture or bench.
type progress struct {
	screen *os.File // nil where there is none
}

// show writes the progress of torture.
func (p *progress) show(s torture.Snapshot) {
	var faults int64
	for _, n := range s.Stats.Faults {
		faults += n
	}
	text := fmt.Sprintf("%s %v: %d violations, %d operations, %d faults, %d lost, %d stale",
		s.Phase, s.Elapsed.Round(time.Second), s.Violations, s.Stats.Calls, faults, s.Stats.Lost, s.Stats.Stale)
	if len(s.Active) > 0 {
		text += "; now: " + strings.Join(s.Active, ", ")
	}
	p.write(text)
}

// write writes the line over the last one.
func (p *progress) write(text string) {
	width, _, err := term.GetSize(int(p.screen.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	fmt.Fprintf(p.screen, "\r%s\x1b[K", fit(text, width-1))
}

// clear erases the line.
func (p *progress) clear() {
	if p.screen != nil {
		fmt.Fprint(p.screen, "\r\x1b[K")
	}
}

// reportText returns a report for people.
func reportText(r torture.Report) string {
	var b strings.Builder
	row := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-24s %s\n", what, fmt.Sprintf(format, args...))
	}
	row("operations", "%d in %.1f s: %d grants, %d waits that ended, %d tries refused, %d store errors, %d unknown",
		r.Calls, r.Seconds, r.Grants, r.Timeouts, r.Busy, r.Errors, r.Unknown)
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", r.Faults[kind], kind))
	}
	if r.Requests > 0 {
		kinds = append(kinds, fmt.Sprintf("%d requests and pushes met one", r.Requests))
	}
	row("faults", "%d (%s)", r.FaultCount(), strings.Join(kinds, ", "))
	row("overlaps", "%d", r.Overlaps)
	row("holds lost and told", "%d", r.Lost)
	row("longest wait", "%.3f s; %.3f s for a fresh process after the last fault", r.Wait, r.Probe)
	row("guarded writes", "%d, and %d stale ones stopped", r.Writes, r.Stale)
	row("without the guard", "%d writes would have been lost", r.Corrupted)
	row("order, linearizability", "%d waits, %d slices", r.Ordered, r.Slices)
	if r.OK() {
		fmt.Fprintf(&b, "\nno violation found in %d faults and %d operations, seed %d\n", r.FaultCount(), r.Calls, r.Seed)
		return b.String()
	}
	fmt.Fprintf(&b, "\n%d violations, seed %d\n", len(r.Violations)+r.More, r.Seed)
	for _, v := range r.Violations {
		b.WriteString("\n")
		for text := range strings.Lines(v) {
			b.WriteString(printable(strings.TrimSuffix(text, "\n")) + "\n")
		}
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "\nand %d more\n", r.More)
	}
	return b.String()
}
