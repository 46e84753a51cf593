package sqlcases

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// Users creates users of a server and revokes rights from them. A right is the text of
// a grant: "SELECT on holdfast_line".
type Users struct {
	Create func(user string, rights []string) // a user with these rights
	Revoke func(user, right string)
	Open   func(user string) (driver.Driver, error)
	Count  func(query string) int64 // the single number that a query returns
}

// Rights describes users of the tables with these names to the suite. The first
// table is that of the layout, whose single row stays.
func Rights(tables []string, users Users) *drivertest.Rights {
	var needed []string
	for i, table := range tables {
		for _, verb := range []string{"SELECT", "UPDATE", "INSERT", "DELETE"} {
			if i > 0 || verb == "SELECT" || verb == "UPDATE" {
				needed = append(needed, verb+" on holdfast_"+table)
			}
		}
	}
	var last atomic.Int64
	return &drivertest.Rights{
		Needed: needed,
		User: func(_ drivertest.T, without ...string) drivertest.User {
			user := fmt.Sprintf("user%d", last.Add(1))
			users.Create(user, slices.DeleteFunc(slices.Clone(needed), func(right string) bool { return slices.Contains(without, right) }))
			return drivertest.User{
				Open:   func(drivertest.T) (driver.Driver, error) { return users.Open(user) },
				Revoke: func(_ drivertest.T, right string) { users.Revoke(user, right) },
			}
		},
		// A queue's row counts its places, and a request finds tickets only by
		// their queue's row. A row that contradicts this would never be
		// removed.
		Unexpiring: func(drivertest.T) (rows []string) {
			for what, query := range map[string]string{
				"places without a ticket": "SELECT count(*) FROM holdfast_line WHERE held + waiting > 0 AND h_id = '' " +
					"AND NOT EXISTS (SELECT 1 FROM holdfast_ticket WHERE line = k)",
				"tickets without a place": "SELECT count(*) FROM holdfast_ticket WHERE NOT EXISTS " +
					"(SELECT 1 FROM holdfast_line WHERE k = line AND held + waiting > 0)",
			} {
				if n := users.Count(query); n > 0 {
					rows = append(rows, fmt.Sprintf("%d %s", n, what))
				}
			}
			return rows
		},
	}
}

// MarkRights checks that Check names each right on the table of marks that a user
// lacks, and that Mark or SetMark is refused then.
func MarkRights(t *testing.T, tables []string, users Users) {
	t.Helper()
	verbs := []string{"SELECT", "INSERT", "UPDATE"}
	rights := Rights(tables, users)
	for _, lacks := range append([]string{""}, verbs...) {
		user := "marks" + strings.ToLower(lacks)
		granted := slices.Clone(rights.Needed)
		for _, verb := range verbs {
			if verb != lacks {
				granted = append(granted, verb+" on holdfast_mark")
			}
		}
		users.Create(user, granted)
		d, err := users.Open(user)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		ctx := t.Context()
		_, read := d.(driver.Marker).Mark(ctx, "n")
		set := errors.Join(d.(driver.Marker).SetMark(ctx, "n", driver.Mark{Token: 1}), d.(driver.Marker).SetMark(ctx, "n", driver.Mark{Token: 2}))
		if refused := read != nil || set != nil; refused != (lacks != "") {
			t.Errorf("without %q: Mark: %v, SetMark: %v", lacks, read, set)
		}
		fs, err := d.(driver.Checker).Check(ctx)
		if err != nil {
			t.Errorf("without %q, Check: %v", lacks, err)
		}
		found := slices.IndexFunc(fs, func(f driver.Finding) bool { return f.Topic == "marks" })
		switch {
		case found < 0:
			t.Errorf("without %q, Check tells nothing of marks: %+v", lacks, fs)
		case lacks == "":
			if fs[found].Level != driver.OK {
				t.Errorf("with all rights: %+v", fs[found])
			}
		case fs[found].Level != driver.Problem || !strings.Contains(fs[found].Detail+fs[found].Advice, lacks) || !strings.Contains(fs[found].Detail, "holdfast_mark"):
			t.Errorf("without %s: %+v", lacks, fs[found])
		}
	}
}
