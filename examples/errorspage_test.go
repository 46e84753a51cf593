//go:build unix

package examples_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// errorRow is a row of the table of errors in docs/what-can-go-wrong.md: the second cell is
// an error.
var errorRow = regexp.MustCompile("(?m)^\\| [^|]*\\| `((?:holdfast: |client is )[^`]*)` \\|")

// TestErrorsOfPageWerePrinted checks that each error of the page's table is one that
// trouble prints, or that a store prints when it goes away.
func TestErrorsOfPageWerePrinted(t *testing.T) {
	page, err := os.ReadFile("../docs/what-can-go-wrong.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := errorRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 17 {
		t.Errorf("the table has %d errors", len(rows))
	}
	i := slices.IndexFunc(examples, func(e example) bool { return e.name == "trouble" })
	outage := errorsOfOutage(t)
	for _, row := range rows {
		printed := slices.ContainsFunc(examples[i].says, func(pattern string) bool {
			is := regexp.MustCompile("^(?:" + pattern + ")$")
			return slices.ContainsFunc([]string{`"examples/trouble"`, `"examples/trouble/rw"`}, func(name string) bool {
				return is.MatchString(strings.ReplaceAll(row[1], `"a"`, name))
			})
		})
		if !printed && !slices.Contains(outage, withoutNumbers(row[1])) {
			t.Errorf("nothing prints %s\ntrouble has %q\nan outage %q", row[1], examples[i].says, outage)
		}
	}
}

// withoutNumbers replaces tokens and ports.
func withoutNumbers(message string) string {
	return regexp.MustCompile(`:\d{4,}|\d{10,}`).ReplaceAllString(message, "N")
}

// errorsOfOutage returns the errors of a URL that is empty, of holds whose server stands
// still, and of a call whose server has died.
func errorsOfOutage(t *testing.T) (all []string) {
	t.Helper()
	add := func(err error) {
		if err == nil {
			t.Fatal("there should have been an error")
		}
		all = append(all, withoutNumbers(err.Error()))
	}
	_, err := anylock.Open(t.Context(), "")
	add(err)

	redis := servers.Redis(t, servers.RedisOptions{})
	locks, err := anylock.Open(t.Context(), redis.URL(""), holdfast.WithTTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	lost, err := locks.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	released, err := locks.Mutex("b", holdfast.WithTTL(10*time.Second)).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	redis.Pause(t)
	defer redis.Resume(t)
	<-lost.Context().Done()
	add(context.Cause(lost.Context()))
	err = released.Unlock()
	add(err)
	all[len(all)-1] = strings.Replace(all[len(all)-1], `"b"`, `"a"`, 1)

	killed := servers.Redis(t, servers.RedisOptions{})
	others, err := anylock.Open(t.Context(), killed.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer others.Close()
	killed.Kill()
	_, err = others.Mutex("a").TryLock(t.Context())
	add(err)
	return all
}
