//go:build unix

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// benchStep describes the progress of a bench in one line.
func benchStep(s bench.Step) string {
	run := "warming up"
	if s.Run > 0 {
		run = fmt.Sprintf("run %d of %d", s.Run, s.Of)
	}
	return fmt.Sprintf("%d %%: %s, %s", s.Done*100/max(s.Steps, 1), s.Scenario.Name, run)
}

// benchText writes a report for people: a table of two columns for each
// scenario, since many figures do not fit side by side.
func benchText(w io.Writer, r *bench.Report) error {
	if _, err := fmt.Fprintf(w, "%s, %s\n", r.Machine, r.Go); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if row.Failed != "" {
			continue // reported as the error of the command
		}
		if _, err := fmt.Fprintf(w, "\n%s: %s\n", row.Scenario, row.Title); err != nil {
			return err
		}
		var rows [][]string
		titles, cells := bench.Cells(row.Scenario, []bench.Row{row})
		for i, title := range titles[1:] {
			rows = append(rows, []string{"  " + title, cells[0][i+1]})
		}
		if err := table(w, rows); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Skipped)) {
		if _, err := fmt.Fprintf(w, "\n%s: not run: %s\n", name, r.Skipped[name]); err != nil {
			return err
		}
	}
	return nil
}
