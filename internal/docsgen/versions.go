package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/versions"
)

// versionsTable returns a table with a row for each server on which all tests
// of a package passed, from the record of such runs.
func versionsTable(fsys fs.FS, pkg string) (string, error) {
	if _, err := fs.Stat(fsys, pkg); err != nil {
		return "", err
	}
	data, err := fs.ReadFile(fsys, versions.File)
	if err != nil {
		return "", err
	}
	all, err := versions.Parse(data)
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(p versions.Pass) bool { return p.Package != pkg })
	if len(all) == 0 {
		return "No run is recorded yet.\n", nil
	}
	slices.SortStableFunc(all, func(a, b versions.Pass) int {
		return cmp.Or(cmp.Compare(a.Title(), b.Title()), compareVersions(a.Version, b.Version))
	})
	var b strings.Builder
	b.WriteString("| server | version | all tests passed on | tests | not run there |\n|---|---|---|---|---|\n")
	for _, p := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s |\n", p.Title(), p.Version, p.Date, p.Tests, cmp.Or(ticked(p.Skipped), "–"))
	}
	return b.String(), nil
}

// compareVersions compares number by number: 9.7 comes before 10.1.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

// ticked returns names as code, in a list.
func ticked(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}
