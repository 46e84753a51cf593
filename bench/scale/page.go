package scale

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var block = regexp.MustCompile(`(?s)<!-- scale:([^\n]*?) -->\n.*?<!-- /scale -->`)

// Fill replaces what stands between <!-- scale:OF FIGURE --> and <!-- /scale --> by
// the table of that figure, with a row for each store; between <!-- scale:run --> and
// the same by what was measured where; and between <!-- scale:carries --> and the same
// by what follows from the unit costs.
func Fill(page []byte, stores []*Report) ([]byte, error) {
	var errs []error
	page = block.ReplaceAllFunc(page, func(b []byte) []byte {
		what := string(block.FindSubmatch(b)[1])
		var text string
		switch what {
		case "run":
			text = circumstances(stores)
		case "kept":
			text = kept(stores)
		case "carries":
			text = carries(stores)
		default:
			of, name, _ := strings.Cut(what, " ")
			if text = table(stores, of, name); text == "" {
				errs = append(errs, fmt.Errorf("no store has a figure %q", what))
			}
		}
		return []byte("<!-- scale:" + what + " -->\n" + text + "<!-- /scale -->")
	})
	return page, errors.Join(errs...)
}

// shown are the names of stores as the page has them, in its order.
var shown = []struct{ store, name string }{
	{"memory", "memory"}, {"sqlite", "SQLite"}, {"redis", "Redis"}, {"etcd", "etcd"}, {"zookeeper", "ZooKeeper"},
	{"postgresql", "PostgreSQL"}, {"mariadb", "MariaDB"},
}

// inOrder calls f for each report, with the store's name.
func inOrder(stores []*Report, f func(name string, r *Report)) {
	for _, s := range shown {
		for _, r := range stores {
			if r.Store == s.store {
				f(s.name, r)
			}
		}
	}
}

func circumstances(stores []*Report) string {
	var b strings.Builder
	inOrder(stores, func(name string, r *Report) {
		var versions []string
		for _, v := range r.Versions {
			versions = append(versions, v)
		}
		fmt.Fprintf(&b, "- %s\n", strings.TrimSpace(strings.Join(append([]string{name}, versions...), " "))+
			fmt.Sprintf(": measured %s in %s s, %s", r.Day, short(r.Seconds), r.Machine))
	})
	return b.String()
}

func kept(stores []*Report) string {
	var b strings.Builder
	b.WriteString("| store | *kept* counts |\n|---|---|\n")
	inOrder(stores, func(name string, r *Report) { fmt.Fprintf(&b, "| %s | %s |\n", name, r.Kept) })
	return b.String()
}

// table returns the table of one figure, or "" if no store has it.
func table(stores []*Report, of, name string) string {
	var sizes []int
	unit := ""
	for _, r := range stores {
		if f := r.Find(of, name); f != nil && len(f.At) > len(sizes) {
			sizes, unit = sizes[:0], f.Unit
			for _, p := range f.At {
				sizes = append(sizes, p.N)
			}
		}
	}
	if len(sizes) == 0 {
		return ""
	}
	var b strings.Builder
	title := name
	if unit != "" {
		title += ", " + unit
	}
	fmt.Fprintf(&b, "| %s |", title)
	for _, n := range sizes {
		fmt.Fprintf(&b, " %s |", Grouped(n))
	}
	b.WriteString(" grows |\n|---|" + strings.Repeat("---:|", len(sizes)) + "---|\n")
	inOrder(stores, func(store string, r *Report) {
		f := r.Find(of, name)
		if f == nil {
			return
		}
		fmt.Fprintf(&b, "| %s |", store)
		for _, n := range sizes {
			cell := "–"
			for _, p := range f.At {
				if p.N == n {
					cell = spoken(p)
				}
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		fmt.Fprintf(&b, " %s |\n", f.Law())
	})
	inOrder(stores, func(store string, r *Report) {
		if f := r.Find(of, name); f != nil && len(f.At) < len(sizes) && r.Stopped[of] != "" {
			fmt.Fprintf(&b, "\n%s was measured no further: %s.\n", store, reason(r.Stopped[of]))
		}
	})
	return b.String()
}

// reason returns the line of an error that says why it came: of requests that ran side by
// side most were cancelled because of another one.
func reason(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "."), "\n")
	for _, line := range lines {
		if !strings.Contains(line, context.Canceled.Error()) {
			line, _, _ = strings.Cut(line, ": server error")
			return line
		}
	}
	return lines[0]
}

// share is the part of one processor of the server that keeping locks may cost in the
// table of what a store carries.
const share = 0.1

// carries derives, from the unit costs at the largest numbers measured, what one
// processor of a server carries.
func carries(stores []*Report) string {
	var b strings.Builder
	b.WriteString("| store | locks taken and released a second, by one processor | held locks that a tenth of a processor renews | waiters that a tenth of a processor renews | a gigabyte keeps, of held locks | of waiters | connections of a client |\n")
	b.WriteString("|---|---:|---:|---:|---:|---:|---:|\n")
	inOrder(stores, func(name string, r *Report) {
		last := func(of, figure string) (Point, bool) {
			f := r.Find(of, figure)
			if f == nil {
				return Point{}, false
			}
			p := f.At[len(f.At)-1]
			return p, p.Median > 0
		}
		cell := func(v float64, ok bool) string {
			if !ok {
				return "–"
			}
			return round2(v)
		}
		rate, hasRate := last("goroutines", "server CPU for each")
		holds, hasHolds := last("holds", "server CPU to keep them, a second")
		renew, hasRenew := last("waiters", "renewal of one, server CPU")
		hold, hasHold := last("holds", "kept for each")
		waiter, hasWaiter := last("waiters", "kept for each")
		conns, hasConns := last("clients", "connections of each")
		connections := "–"
		if hasConns {
			connections = short(conns.Median)
		}
		// A waiting ticket is renewed three times in a TTL of 30 s.
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", name,
			cell(1e6/rate.Median, hasRate),
			cell(share*1000/(holds.Median/float64(holds.N)), hasHolds),
			cell(share*1e6/(renew.Median/10), hasRenew),
			cell(1e9/hold.Median, hasHold), cell(1e9/waiter.Median, hasWaiter), connections)
	})
	return b.String()
}

// round2 returns a number with two digits that count: more would claim too much.
func round2(v float64) string {
	step := 1.0
	for v/step >= 100 {
		step *= 10
	}
	return Grouped(int(float64(int(v/step+0.5)) * step))
}
