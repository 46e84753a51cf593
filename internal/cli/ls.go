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
			queues, err := queuesOf(ctx, client, prefix)
			if err != nil {
				return cause(ctx, err)
			}
			if !a.console.json {
				return table(a.console.stdout(), listing(queues))
			}
			for _, q := range queues {
				if err := a.console.outJSON(queueSummary(q)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// queuesOf returns the queues in use, sorted by name.
func queuesOf(ctx context.Context, c *holdfast.Client, prefix string) ([]holdfast.LockInfo, error) {
	var names []string
	for name, err := range c.Names(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	queues := make([]holdfast.LockInfo, 0, len(names))
	for _, name := range names {
		q, err := c.Inspect(ctx, name)
		if err != nil {
			// A lock that the store cannot read is listed by name; it must not
			// hide the others.
			if s := (*holdfast.StoreError)(nil); ctx.Err() != nil || !errors.As(err, &s) {
				return nil, err
			}
			q = holdfast.LockInfo{Name: name, Size: -1}
		}
		if !isFree(q) || q.Size < 0 {
			queues = append(queues, q)
		}
	}
	return queues, nil
}

// listing returns the table of ls and watch.
func listing(queues []holdfast.LockInfo) [][]string {
	rows := [][]string{{"NAME", "KIND", "HOLD", "WAIT", "SINCE", "HOLDER"}}
	for _, q := range queues {
		row := []string{shown(q.Name), q.Kind(), "-", "-", "-", "-"}
		if q.Size < 0 {
			row[1] = "unreadable"
		} else {
			row[2], row[3] = fmt.Sprint(len(q.Holders)), fmt.Sprint(len(q.Waiters))
			if h, ok := oldest(q); ok {
				row[4], row[5] = formatAge(h.Since), holderText(h)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// oldest returns the holder that joined first.
func oldest(q holdfast.LockInfo) (holdfast.Holder, bool) {
	hs := q.Holders
	if len(hs) == 0 {
		return holdfast.Holder{}, false
	}
	first := slices.MinFunc(hs, func(a, b holdfast.TicketInfo) int { return a.Holder.Since.Compare(b.Holder.Since) })
	return first.Holder, true
}

// summaryJSON is a lock in a list, in JSON.
type summaryJSON struct {
	Name    string      `json:"name"`
	Kind    string      `json:"kind"`
	Limit   int64       `json:"limit,omitempty"`
	Holders int         `json:"holders"`
	Waiters int         `json:"waiters"`
	Oldest  *holderJSON `json:"oldest_holder,omitempty"`
	Age     *float64    `json:"age_seconds,omitempty"`
}

func queueSummary(q holdfast.LockInfo) summaryJSON {
	if q.Size < 0 {
		return summaryJSON{Name: q.Name, Kind: "unreadable"}
	}
	s := summaryJSON{
		Name: q.Name, Kind: q.Kind(), Limit: q.Size,
		Holders: len(q.Holders), Waiters: len(q.Waiters),
	}
	if h, ok := oldest(q); ok {
		s.Oldest = holderToJSON(h)
		if !h.Since.IsZero() {
			s.Age = new(seconds(max(0, time.Since(h.Since))))
		}
	}
	return s
}
