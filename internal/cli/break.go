//go:build unix

package cli

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
)

func (a *app) breakTicket() *cobra.Command {
	var ticket string
	var yes bool
	cmd := &cobra.Command{
		Use:   "break [flags] NAME",
		Short: "Take a lock away from who holds it",
		Long: `Break removes a ticket from the queue of the lock NAME: by default that of the one
who holds it, with --ticket any, holding or waiting. The next in line gets the
lock.

The party that held it learns of that at once where the store can push, and with
its next renewal otherwise, which is a third of its TTL later at most. Until then
two may believe that they hold, unless the first is dead: break is for holders
that are known to be dead or stuck. Those that are dead lose the lock by
themselves after their TTL.

It asks before it does so, unless --yes is given. If several hold the lock,
--ticket says whose to break (see show). With --json it does not ask, and needs
--yes.`,
		Example: `  holdfast break nightly
  holdfast break nightly --ticket 7d1c0a52-6c1b-4f0e-9a55-0e5d3a1f2b11:1 --yes`,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := exactlyOne("NAME", args)
			if err != nil {
				return err
			}
			if a.console.json && !yes {
				return usage("--json does not ask: add --yes")
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
			t, err := choose(queue, ticket)
			if err != nil {
				return err
			}
			state := stateOf(queue, t)
			if !yes && !a.confirm(ctx, queue, t) {
				return fail(exitNo, "nothing was broken")
			}
			if err := client.Break(ctx, name, t.ID); err != nil {
				return cause(ctx, err)
			}
			if a.console.json {
				return a.console.outJSON(struct {
					Name   string     `json:"name"`
					Broken ticketJSON `json:"broken"`
				}{name, ticketDetail(state, t)})
			}
			fmt.Fprintf(a.console.stdout(), "broke the ticket of %s, which %s %s\n", holderText(t.Holder), did(state), shown(name))
			return nil
		},
	}
	cmd.Flags().StringVar(&ticket, "ticket", "", "`ID` of the ticket to break, as show shows it")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// choose returns the ticket to break.
func choose(q holdfast.LockInfo, id string) (holdfast.TicketInfo, error) {
	if id != "" {
		for _, t := range slices.Concat(q.Holders, q.Waiters) {
			if t.ID == id {
				return t, nil
			}
		}
		return holdfast.TicketInfo{}, fail(exitNo, "%s has no ticket %s", shown(q.Name), printable(id))
	}
	switch hs := q.Holders; {
	case isFree(q):
		return holdfast.TicketInfo{}, fail(exitNo, "nobody holds %s", shown(q.Name))
	case len(hs) == 0:
		return holdfast.TicketInfo{}, fail(exitNo, "nobody holds %s, and %d wait: choose one of their tickets with --ticket",
			shown(q.Name), len(q.Waiters))
	case len(hs) > 1:
		ids := make([]string, len(hs))
		for i, t := range hs {
			ids[i] = printable(t.ID) + " of " + holderText(t.Holder)
		}
		return holdfast.TicketInfo{}, usage("%d hold %s: choose one with --ticket: %s", len(hs), shown(q.Name), strings.Join(ids, ", "))
	default:
		return hs[0], nil
	}
}

// confirm asks on standard error and reads the answer from standard input. The
// end of standard input, or of ctx, counts as no.
func (a *app) confirm(ctx context.Context, q holdfast.LockInfo, t holdfast.TicketInfo) bool {
	state := stateOf(q, t)
	fmt.Fprintf(a.console.stderr(), "%s is a %s.\nThe ticket of %s %s it since %s; %d wait.\nIf that party lives, it goes on for a moment beside the next holder. Break it? [y/N] ",
		shown(q.Name), q.Kind(), holderText(t.Holder), did(state), formatAge(t.Holder.Since), len(q.Waiters))
	answer := make(chan string, 1)
	go func() { // a read cannot be cancelled; it ends with the process
		text, _ := bufio.NewReader(a.root.InOrStdin()).ReadString('\n')
		answer <- text
	}()
	select {
	case text := <-answer:
		text = strings.ToLower(strings.TrimSpace(text))
		return text == "y" || text == "yes"
	case <-ctx.Done():
		fmt.Fprintln(a.console.stderr())
		return false
	}
}

// did returns the verb that stands before the name of the lock: the ticket held
// it, or waited for it.
func did(state string) string {
	if state == stateHeld {
		return "held"
	}
	return "waited for"
}
