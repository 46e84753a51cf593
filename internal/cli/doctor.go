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
			client, loc, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			findings, err := client.Check(ctx)
			switch {
			case errors.Is(err, holdfast.ErrUnsupported):
				findings = []holdfast.Finding{{Topic: "check", Level: holdfast.LevelWarning, Detail: "this store has no check of its own",
					Advice: "see docs/guarantees.md for what it promises"}}
			case err != nil:
				return cause(ctx, err)
			}
			first := []holdfast.Finding{loc.finding()}
			if tr, remote := transportOf(loc.url); remote {
				first = append(first, tr.finding())
			}
			findings = append(first, findings...)
			if err := a.writeFindings(loc, client.Traits(), findings); err != nil {
				return err
			}
			for _, f := range findings {
				if f.Level == holdfast.LevelProblem {
					return exitWith(exitNo)
				}
			}
			return nil
		},
	}
}

// finding reports whether the URL was given in a way that shows its password.
func (l location) finding() holdfast.Finding {
	f := holdfast.Finding{Topic: "url", Detail: l.shown() + ", from " + l.from}
	if l.argv && strings.Contains(anylock.Redact(l.url), anylock.Hidden) {
		f.Level = holdfast.LevelWarning
		f.Detail += ": every user of this machine can read the password in the command line"
		f.Advice = "put the URL into a file that only you can read, and give that by --store-file or HOLDFAST_STORE=@FILE"
	}
	return f
}

func (a *app) writeFindings(l location, t holdfast.Traits, findings []holdfast.Finding) error {
	if a.console.json {
		for _, f := range findings {
			err := a.console.outJSON(struct {
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
	for _, f := range findings {
		rows = append(rows, []string{f.Level.String(), printable(f.Topic), printable(f.Detail)})
		if f.Advice != "" {
			rows = append(rows, []string{"", "", "-> " + printable(f.Advice)})
		}
	}
	if err := table(a.console.stdout(), rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.console.stdout(), "\nThis store: %s.\n", describeTraits(t))
	return err
}

// describeTraits summarises a store's traits in words.
func describeTraits(t holdfast.Traits) string {
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
		{t.Marks, "once for each slot"},
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
