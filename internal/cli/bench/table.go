package bench

import (
	"fmt"
	"math"
	"strings"
)

// Column is a figure as it is shown.
type Column struct {
	Title  string
	Figure string
}

// Columns are the figures that a table of a scenario shows.
func Columns(s string) []Column {
	switch {
	case strings.HasPrefix(s, "held-"):
		return []Column{{"bytes per lock", "bytes_per_lock"}, {"goroutines", "goroutines"},
			{"requests per 100 renewed", "requests_per_100_renewed"}, {"another lock: p50 µs", "cycle_p50_us"}, {"p99 µs", "cycle_p99_us"},
			{"client CPU per lock and s, µs", "client_cpu_us"}}
	case s == "command":
		return []Column{{"CPU ms", "cpu_ms"}, {"ms", "wall_ms"}}
	case s == "crash":
		return []Column{{"next holder after, ms", "recovery_ms"}, {"TTL, ms", "ttl_ms"}}
	case strings.HasPrefix(s, "alone-"):
		return []Column{{"per s", "per_s"}, {"p50 µs", "cycle_p50_us"}, {"p99 µs", "cycle_p99_us"}, {"max µs", "cycle_max_us"},
			{"requests", "requests"}, {"allocs", "allocs"}, {"bytes", "bytes"}, {"goroutines", "goroutines"},
			{"client CPU µs", "client_cpu_us"}, {"server CPU µs", "server_cpu_us"}}
	}
	all := []Column{{"per s", "per_s"}, {"hand-off p50 µs", "handoff_p50_us"}, {"p99 µs", "handoff_p99_us"}, {"max µs", "handoff_max_us"},
		{"requests", "requests"}, {"woken", "woken"}, {"Jain", "jain"}, {"longest wait, ms", "wait_max_ms"}, {"÷ mean", "wait_max_over_mean"}}
	if s == "crowds" {
		all = append(all, Column{"longest turn, grants", "turn_max_grants"}, Column{"ms", "turn_max_ms"})
	}
	return append(all, Column{"allocs", "allocs"}, Column{"client CPU µs", "client_cpu_us"}, Column{"server CPU µs", "server_cpu_us"})
}

// Short writes a number with about three digits.
func Short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%.3g M", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%.3g k", v/1e3)
	case a >= 100 || a == math.Trunc(a):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.095:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// Spoken writes a median and, where runs differ by a twentieth or more, its
// spread.
func (s Spread) Spoken() string {
	if s.Max-s.Min < math.Abs(s.Median)/20 || Short(s.Min) == Short(s.Max) {
		return Short(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Short(s.Median), Short(s.Min), Short(s.Max))
}

// Cells are the titles of a scenario's table and a line for each of its rows,
// without the columns of which nothing is known.
func Cells(scenario string, rows []Row) (titles []string, lines [][]string) {
	var known []Column
	for _, c := range Columns(scenario) {
		for _, row := range rows {
			if _, ok := row.Figures[c.Figure]; ok {
				known = append(known, c)
				break
			}
		}
	}
	titles = []string{""}
	for _, c := range known {
		titles = append(titles, c.Title)
	}
	for _, row := range rows {
		line := []string{row.Implementation}
		for _, c := range known {
			cell := "–"
			if s, ok := row.Figures[c.Figure]; ok {
				cell = s.Spoken()
			}
			line = append(line, cell)
		}
		lines = append(lines, line)
	}
	return titles, lines
}
