//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Examine the store, and say what to change",
		Long: `Doctor looks for what makes locks in the store weaker than they could be: whether
it can be reached, whether TLS protects the way there, how long a round trip takes,
what its version is, whether it may throw locks away, what it loses in a restart or
failover, its clock, and the rights that are missing. It says what to change. It
leaves nothing behind in the store.

It exits with 0 if there is no problem (warnings are none), with 1 if there is
one, and with 69 if the store cannot be reached or examined.`,
		Example: `  holdfast doctor
  holdfast --store redis://locks.example.org doctor
  holdfast doctor --json | jq 'select(.level != "ok")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("doctor takes no arguments")
			}
			ctx, stop := untilSignal(context.Background())
			defer stop()
			client, place, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			found, err := client.Check(ctx)
			switch {
			case errors.Is(err, holdfast.ErrUnsupported):
				found = []driver.Finding{{Topic: "check", Level: driver.Warning, Detail: "this store has no check of its own",
					Advice: "see docs/guarantees.md for what it promises"}}
			case err != nil:
				return cause(ctx, err)
			}
			first := []driver.Finding{place.finding()}
			if way, remote := transportOf(place.url); remote {
				first = append(first, way.finding())
			}
			found = append(first, found...)
			if err := a.writeFindings(place, client.Traits(), found); err != nil {
				return err
			}
			for _, f := range found {
				if f.Level == driver.Problem {
					return ended(exitNo)
				}
			}
			return nil
		},
	}
}

// finding judges how the URL of the store was given.
func (l location) finding() driver.Finding {
	f := driver.Finding{Topic: "url", Detail: l.shown() + ", from " + l.from}
	if l.argv && strings.Contains(anylock.Redact(l.url), anylock.Hidden) {
		f.Level = driver.Warning
		f.Detail += ": every user of this machine can read the password in the command line"
		f.Advice = "put the URL into a file that only you can read, and give that by --store-file or HOLDFAST_STORE=@FILE"
	}
	return f
}

func (a *app) writeFindings(l location, t driver.Traits, found []driver.Finding) error {
	if a.json {
		for _, f := range found {
			err := a.outJSON(struct {
				Store  string `json:"store"`
				Topic  string `json:"topic"`
				Level  string `json:"level"`
				Detail string `json:"detail"`
				Advice string `json:"advice,omitempty"`
			}{l.shown(), f.Topic, f.Level.String(), f.Detail, f.Advice})
			if err != nil {
				return err
			}
		}
		return nil
	}
	rows := [][]string{{"LEVEL", "TOPIC", "FOUND"}}
	for _, f := range found {
		rows = append(rows, []string{f.Level.String(), clean(f.Topic), clean(f.Detail)})
		if f.Advice != "" {
			rows = append(rows, []string{"", "", "-> " + clean(f.Advice)})
		}
	}
	if err := table(a.stdout(), rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout(), "\nThis store: %s.\n", promises(t))
	return err
}

// promises sums up what a store's traits say.
func promises(t driver.Traits) string {
	var yes, no []string
	for _, p := range []struct {
		has  bool
		text string
	}{
		{t.Fencing, "fencing tokens"},
		{t.Shared, "read/write locks and semaphores"},
		{t.Owner, "named owners"},
		{t.Fair, "first in, first out"},
		{t.Push, "waking of waiters"},
		{t.SurvivesRestart, "holds survive a restart"},
		{t.SurvivesFailover, "holds survive the loss of a server"},
	} {
		if p.has {
			yes = append(yes, p.text)
		} else {
			no = append(no, p.text)
		}
	}
	s := strings.Join(yes, ", ")
	if len(no) > 0 {
		s += "; not: " + strings.Join(no, ", ")
	}
	return s
}
