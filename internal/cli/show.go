//go:build unix

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

func (a *app) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show [flags] NAME",
		Short: "Show who holds a lock and who waits for it",
		Long: `Show shows the line of the lock NAME: those who hold it, then those who wait, in
the order in which they will get it. For each it shows the ticket (which break
takes), who that is (owner, process, host, note), since when by their own clock,
and the time left until the store drops them unless they renew; for holders also
the token.

A lock that nobody uses is shown as free; that is no error.`,
		Example: `  holdfast show nightly
  holdfast show --json nightly | jq '.tickets[] | select(.state == "held")'`,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := one("NAME", args)
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
			line, err := client.Inspect(ctx, name)
			if err != nil {
				return cause(ctx, err)
			}
			if a.json {
				return a.outJSON(lineDetail(line))
			}
			fmt.Fprintf(a.stdout(), "%s: %s\n", shown(line.Name), headline(line))
			if len(line.Tickets) == 0 {
				return nil
			}
			return table(a.stdout(), ticketRows(line))
		},
	}
}

// headline sums a line up.
func headline(l holdfast.Line) string {
	if len(l.Tickets) == 0 {
		return "free"
	}
	s := fmt.Sprintf("%s, held by %d, %d waiting", l.Kind(), len(l.Holders()), len(l.Waiters()))
	if l.Token > 0 {
		s += fmt.Sprintf(", last token %d", l.Token)
	}
	return s
}

// ticketRows is the table of a line's tickets.
func ticketRows(l holdfast.Line) [][]string {
	rows := [][]string{{"STATE", "UNITS", "SINCE", "LEFT", "TOKEN", "TICKET", "WHO"}}
	for _, t := range l.Tickets {
		token := "-"
		if t.Token > 0 {
			token = fmt.Sprint(t.Token)
		}
		rows = append(rows, []string{
			t.State.String(), units(l, t), age(t.Holder.Since), span(t.Left), token, clean(t.ID), holderText(t.Holder),
		})
	}
	return rows
}

// units is what a ticket takes, in the words of its kind of lock.
func units(l holdfast.Line, t holdfast.LineTicket) string {
	switch kind := l.Kind(); {
	case kind == "mutex":
		return "-"
	case !strings.HasPrefix(kind, "read"):
		return fmt.Sprint(t.Units)
	case t.Units == l.Limit:
		return "write"
	}
	return "read"
}

// detailJSON is all there is to say about a lock.
type detailJSON struct {
	Name    string       `json:"name"`
	Kind    string       `json:"kind"`
	Limit   int64        `json:"limit,omitempty"`
	Token   uint64       `json:"token,omitempty"`
	Tickets []ticketJSON `json:"tickets"`
}

// ticketJSON is one ticket.
type ticketJSON struct {
	ID     string      `json:"id"`
	State  string      `json:"state"`
	Units  int64       `json:"units"`
	Token  uint64      `json:"token,omitempty"`
	Left   float64     `json:"left_seconds"`
	Age    *float64    `json:"age_seconds,omitempty"`
	Holder *holderJSON `json:"holder,omitempty"`
}

func lineDetail(l holdfast.Line) detailJSON {
	d := detailJSON{Name: l.Name, Kind: l.Kind(), Limit: l.Limit, Token: l.Token, Tickets: []ticketJSON{}}
	for _, t := range l.Tickets {
		d.Tickets = append(d.Tickets, ticketDetail(t))
	}
	return d
}

func ticketDetail(t holdfast.LineTicket) ticketJSON {
	j := ticketJSON{
		ID: t.ID, State: t.State.String(), Units: t.Units, Token: t.Token, Left: seconds(t.Left), Holder: toJSON(t.Holder),
	}
	if !t.Holder.Since.IsZero() {
		j.Age = new(seconds(max(0, time.Since(t.Holder.Since))))
	}
	return j
}
