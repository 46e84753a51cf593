package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

// results are the reports of a folder, by store and scenario.
type results map[string]*bench.Report

func readResults(dir string) (results, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := results{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r := new(bench.Report)
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(r.Rows) > 0 {
			all[r.Rows[0].Store+" "+r.Rows[0].Scenario] = r
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no results in %s", dir)
	}
	return all, nil
}

// render draws the plots and writes the tables of performance.md.
func render(from, docs string) error {
	all, err := readResults(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(docs, "plots"), 0o777); err != nil {
		return err
	}
	for _, p := range plots {
		svg, err := p.draw(all)
		if err != nil {
			return fmt.Errorf("%s: %w", p.file, err)
		}
		if err := os.WriteFile(filepath.Join(docs, "plots", p.file), svg, 0o666); err != nil {
			return err
		}
	}
	page := filepath.Join(docs, "performance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err = fill(text, all)
	if err != nil {
		return err
	}
	return os.WriteFile(page, text, 0o666)
}

var block = regexp.MustCompile(`(?s)<!-- bench:([^\n]*?) -->\n.*?<!-- /bench -->`)

// fill replaces what stands between <!-- bench:STORE SCENARIO --> and
// <!-- /bench --> by the table of that scenario, and between
// <!-- bench:run --> and the same by what was run where, and after
// <!-- bench:targets --> by what was wanted and reached.
func fill(page []byte, all results) ([]byte, error) {
	var errs []error
	page = block.ReplaceAllFunc(page, func(b []byte) []byte {
		what := string(block.FindSubmatch(b)[1])
		text := ""
		if what == "run" {
			text = circumstances(all)
		} else if what == "targets" {
			text = judged(all)
		} else if r := all[what]; r != nil {
			text = markdown(r)
		} else {
			errs = append(errs, fmt.Errorf("there are no results of %q", what))
		}
		return []byte("<!-- bench:" + what + " -->\n" + text + "<!-- /bench -->")
	})
	return page, errors.Join(errs...)
}

func markdown(r *bench.Report) string {
	var b strings.Builder
	var rows []bench.Row
	var failed []string
	for _, row := range r.Rows {
		if row.Failed != "" {
			failed = append(failed, fmt.Sprintf("%s gave no figures: %s\n", row.Implementation, row.Failed))
			continue
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b bench.Row) int { return rank(a.Role) - rank(b.Role) })
	titles, lines := bench.Cells(r.Rows[0].Scenario, rows)
	titles[0] = r.Rows[0].Title
	fmt.Fprintf(&b, "| %s |\n|---%s|\n", strings.Join(titles, " | "), strings.Repeat("|---:", len(titles)-1))
	for _, line := range lines {
		if line[0] == "holdfast" {
			line[0] = "**Holdfast**"
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
	}
	for _, f := range failed {
		b.WriteString("\n" + f)
	}
	return b.String()
}

// rank puts Holdfast first, then its peers, then the limits.
func rank(role string) int {
	return slices.Index([]string{bench.RoleHoldfast, bench.RolePeer, bench.RoleLimit}, role)
}

// circumstances says where, when and with what all of it was measured.
func circumstances(all results) string {
	machines, servers, libraries := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var first, last string
	for _, r := range all {
		machines[r.Machine+", "+r.Go] = true
		for name, v := range r.Versions {
			servers[name+" "+v] = true
		}
		for _, row := range r.Rows {
			if name, _, _ := strings.Cut(row.Implementation, ","); row.Role == bench.RolePeer && row.Version != "" {
				libraries[name+" "+row.Version] = true
			}
		}
		day := r.Began.Format("2006-01-02")
		if first == "" || day < first {
			first = day
		}
		last = max(last, day)
	}
	words := func(m map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(m)), "; ") }
	if last != first {
		first += " to " + last
	}
	return fmt.Sprintf("- measured: %s\n- machine: %s\n- servers: %s\n- peers: %s\n", first, words(machines), words(servers), words(libraries))
}
