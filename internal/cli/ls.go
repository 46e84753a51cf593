//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

func (a *app) ls() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [flags] [PREFIX]",
		Short: "List the locks that are in use",
		Long: `Ls lists the locks that somebody holds or waits for and whose names begin with
PREFIX, sorted by name: what kind of lock it is, how many hold it and wait for it,
who of those that hold it asked first, and how long ago that was by their own
clock.

With --json it writes an object for each lock. An empty list is no error.`,
		Example: `  holdfast ls
  holdfast ls invoice/
  holdfast ls --json | jq -r 'select(.waiters > 0) | .name'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix, err := atMostOne("PREFIX", args)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(context.Background())
			defer stop()
			client, _, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			lines, err := linesOf(ctx, client, prefix)
			if err != nil {
				return cause(ctx, err)
			}
			if !a.json {
				return table(a.stdout(), listing(lines))
			}
			for _, l := range lines {
				if err := a.outJSON(lineSummary(l)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// linesOf returns the lines in use, sorted by name.
func linesOf(ctx context.Context, c *holdfast.Client, prefix string) ([]holdfast.Line, error) {
	var names []string
	for name, err := range c.Names(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	lines := make([]holdfast.Line, 0, len(names))
	for _, name := range names {
		l, err := c.Inspect(ctx, name)
		if err != nil {
			// What the store cannot read is shown by name; it must not hide
			// the others.
			if s := (*holdfast.StoreError)(nil); ctx.Err() != nil || !errors.As(err, &s) {
				return nil, err
			}
			l = holdfast.Line{Name: name, Limit: -1}
		}
		if len(l.Tickets) > 0 || l.Limit < 0 {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// listing is the table of ls and watch.
func listing(lines []holdfast.Line) [][]string {
	rows := [][]string{{"NAME", "KIND", "HOLD", "WAIT", "SINCE", "HOLDER"}}
	for _, l := range lines {
		row := []string{shown(l.Name), l.Kind(), "-", "-", "-", "-"}
		if l.Limit < 0 {
			row[1] = "unreadable"
		} else {
			row[2], row[3] = fmt.Sprint(len(l.Holders())), fmt.Sprint(len(l.Waiters()))
			if h, ok := oldest(l); ok {
				row[4], row[5] = age(h.Since), holderText(h)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// oldest is the holder that asked first.
func oldest(l holdfast.Line) (holdfast.Holder, bool) {
	hs := l.Holders()
	if len(hs) == 0 {
		return holdfast.Holder{}, false
	}
	first := slices.MinFunc(hs, func(a, b holdfast.LineTicket) int { return a.Holder.Since.Compare(b.Holder.Since) })
	return first.Holder, true
}

// summaryJSON is a lock in a list.
type summaryJSON struct {
	Name    string      `json:"name"`
	Kind    string      `json:"kind"`
	Limit   int64       `json:"limit,omitempty"`
	Holders int         `json:"holders"`
	Waiters int         `json:"waiters"`
	Oldest  *holderJSON `json:"oldest_holder,omitempty"`
	Age     *float64    `json:"age_seconds,omitempty"`
}

func lineSummary(l holdfast.Line) summaryJSON {
	if l.Limit < 0 {
		return summaryJSON{Name: l.Name, Kind: "unreadable"}
	}
	s := summaryJSON{
		Name: l.Name, Kind: l.Kind(), Limit: l.Limit,
		Holders: len(l.Holders()), Waiters: len(l.Waiters()),
	}
	if h, ok := oldest(l); ok {
		s.Oldest = toJSON(h)
		if !h.Since.IsZero() {
			s.Age = new(seconds(max(0, time.Since(h.Since))))
		}
	}
	return s
}
