//go:build unix

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

func (a *app) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show [flags] NAME",
		Short: "Show who holds a lock and who waits for it",
		Long: `Show shows the queue of the lock NAME: those who hold it, then those who wait, in
the order in which they will get it. For each it shows the ticket (which break
takes), who that is (owner, process, host, note), since when by their own clock,
and the time left until the store drops them unless they renew; for holders also
the token.

Of a job of run --once-per it also shows the slot that was done last, or why the
store's record of it cannot be read.

A lock that nobody uses is shown as free; that is no error.`,
		Example: `  holdfast show nightly
  holdfast show --json nightly | jq '.tickets[] | select(.state == "held")'`,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := exactlyOne("NAME", args)
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
			queue, err := client.Inspect(ctx, name)
			if err != nil {
				return cause(ctx, err)
			}
			last, unread := lastDone(ctx, client, name)
			if unread != nil && ctx.Err() != nil {
				return cause(ctx, unread)
			}
			if a.console.json {
				d := queueDetail(queue)
				if last != nil {
					d.Done = &doneJSON{Slot: last.Slot, At: last.At, Token: last.Token, Holder: holderToJSON(last.By)}
				}
				if unread != nil {
					d.DoneError = message(unread)
				}
				return a.console.outJSON(d)
			}
			fmt.Fprintf(a.console.stdout(), "%s: %s\n", shown(queue.Name), headline(queue))
			switch {
			case unread != nil:
				fmt.Fprintf(a.console.stdout(), "last slot: unreadable: %s\n", message(unread))
			case last != nil:
				fmt.Fprintf(a.console.stdout(), "last slot: %s\n", doneText(*last))
			}
			if isFree(queue) {
				return nil
			}
			return table(a.console.stdout(), ticketRows(queue))
		},
	}
}

// The states of a ticket, in tables and in JSON.
const (
	stateHeld    = "held"
	stateWaiting = "waiting"
)

// isFree reports whether nobody holds a lock or waits for it.
func isFree(q holdfast.LockInfo) bool { return len(q.Holders)+len(q.Waiters) == 0 }

// stateOf returns the state of a ticket of a queue.
func stateOf(q holdfast.LockInfo, t holdfast.TicketInfo) string {
	if slices.Contains(q.Holders, t) {
		return stateHeld
	}
	return stateWaiting
}

// headline summarises a queue.
func headline(q holdfast.LockInfo) string {
	if isFree(q) {
		return "free"
	}
	s := fmt.Sprintf("%s, held by %d, %d waiting", q.Kind(), len(q.Holders), len(q.Waiters))
	if q.Token > 0 {
		s += fmt.Sprintf(", last token %d", q.Token)
	}
	return s
}

// ticketRows returns the table of a queue's tickets.
func ticketRows(q holdfast.LockInfo) [][]string {
	rows := [][]string{{"STATE", "UNITS", "SINCE", "LEFT", "TOKEN", "TICKET", "WHO"}}
	row := func(state string, t holdfast.TicketInfo) {
		token := "-"
		if t.Token > 0 {
			token = fmt.Sprint(t.Token)
		}
		rows = append(rows, []string{
			state, units(q, t), formatAge(t.Holder.Since), formatDuration(t.Left), token, printable(t.ID), holderText(t.Holder),
		})
	}
	for _, t := range q.Holders {
		row(stateHeld, t)
	}
	for _, t := range q.Waiters {
		row(stateWaiting, t)
	}
	return rows
}

// units returns the units of a ticket, in the words of its kind of lock.
func units(q holdfast.LockInfo, t holdfast.TicketInfo) string {
	switch kind := q.Kind(); {
	case kind == "mutex":
		return "-"
	case !strings.HasPrefix(kind, "read"):
		return fmt.Sprint(t.Units)
	case t.Units == q.Size:
		return "write"
	}
	return "read"
}

// detailJSON is a lock with all of its tickets, in JSON.
type detailJSON struct {
	Name    string       `json:"name"`
	Kind    string       `json:"kind"`
	Limit   int64        `json:"limit,omitempty"`
	Token   uint64       `json:"token,omitempty"`
	Tickets []ticketJSON `json:"tickets"`
	Done    *doneJSON    `json:"last_done,omitempty"` // by run --once-per

	DoneError string `json:"last_done_error,omitempty"` // why that cannot be read
}

// ticketJSON is one ticket, in JSON.
type ticketJSON struct {
	ID     string      `json:"id"`
	State  string      `json:"state"`
	Units  int64       `json:"units"`
	Token  uint64      `json:"token,omitempty"`
	Left   float64     `json:"left_seconds"`
	Age    *float64    `json:"age_seconds,omitempty"`
	Holder *holderJSON `json:"holder,omitempty"`
}

func queueDetail(q holdfast.LockInfo) detailJSON {
	d := detailJSON{Name: q.Name, Kind: q.Kind(), Limit: q.Size, Token: q.Token, Tickets: []ticketJSON{}}
	for _, t := range q.Holders {
		d.Tickets = append(d.Tickets, ticketDetail(stateHeld, t))
	}
	for _, t := range q.Waiters {
		d.Tickets = append(d.Tickets, ticketDetail(stateWaiting, t))
	}
	return d
}

func ticketDetail(state string, t holdfast.TicketInfo) ticketJSON {
	j := ticketJSON{
		ID: t.ID, State: state, Units: t.Units, Token: t.Token, Left: seconds(t.Left), Holder: holderToJSON(t.Holder),
	}
	if !t.Holder.Since.IsZero() {
		j.Age = new(seconds(max(0, time.Since(t.Holder.Since))))
	}
	return j
}
