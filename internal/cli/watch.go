//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
)

// minInterval keeps a watcher from loading the store.
const minInterval = 100 * time.Millisecond

func (a *app) watch() *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "watch [flags] [PREFIX]",
		Short: "Show the locks that are in use, and keep the table up to date",
		Long: `Watch shows the table of ls and writes it anew every --interval, until it is
interrupted. On a terminal the table stays in place and is cut to the screen.
Elsewhere it is written, with the time, whenever other parties hold or wait.

With --json it writes an object with the time and all locks, under the same
condition.`,
		Example: `  holdfast watch
  holdfast watch --interval 500ms invoice/
  holdfast watch --json | jq -c '[.time, (.locks | length)]'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix, err := atMostOne("PREFIX", args)
			if err != nil {
				return err
			}
			if interval < minInterval {
				return usage("--interval %v is below %v", interval, minInterval)
			}
			ctx, stop := untilSignal(context.Background())
			defer stop()
			client, _, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			w := &watcher{app: a, client: client, prefix: prefix, interval: interval}
			if f, ok := a.out.to.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
				w.screen = f
			}
			return w.run(ctx)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "`DURATION` between two looks at the store")
	return cmd
}

// watcher is one invocation of watch.
type watcher struct {
	*app
	client   *holdfast.Client
	prefix   string
	interval time.Duration
	screen   *os.File // nil when standard output is no terminal

	wrote bool
	last  string // the fingerprint of the last table
}

// run reads the queues until ctx ends. A signal is the intended end, so it is no
// error.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		queues, err := queuesOf(ctx, w.client, w.prefix)
		if err == nil {
			err = w.write(queues)
		}
		if ctx.Err() != nil {
			var by *signalError
			if errors.As(context.Cause(ctx), &by) {
				return nil
			}
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *watcher) write(queues []holdfast.LockInfo) error {
	if w.screen != nil && !w.console.json {
		return w.draw(queues)
	}
	current := fingerprint(queues)
	if w.wrote && current == w.last {
		return nil
	}
	w.wrote, w.last = true, current
	now := time.Now()
	if w.console.json {
		locks := make([]summaryJSON, len(queues))
		for i, q := range queues {
			locks[i] = queueSummary(q)
		}
		return w.console.outJSON(struct {
			Time  time.Time     `json:"time"`
			Locks []summaryJSON `json:"locks"`
		}{now, locks})
	}
	fmt.Fprintln(w.console.stdout(), now.Format(time.RFC3339))
	return table(w.console.stdout(), listing(queues))
}

// fingerprint returns the tickets of the queues and their states, so that two
// looks can be compared.
func fingerprint(queues []holdfast.LockInfo) string {
	var b strings.Builder
	for _, q := range queues {
		fmt.Fprintf(&b, "%q %d", q.Name, q.Size)
		for _, t := range q.Holders {
			b.WriteString(" +" + t.ID)
		}
		for _, t := range q.Waiters {
			b.WriteString(" -" + t.ID)
		}
	}
	return b.String()
}

// draw writes the table over the last one.
func (w *watcher) draw(queues []holdfast.LockInfo) error {
	width, height, err := term.GetSize(int(w.screen.Fd()))
	if err != nil || width < 20 || height < 3 {
		width, height = 80, 24
	}
	var text bytes.Buffer
	if err := table(&text, listing(queues)); err != nil {
		return err
	}
	rows := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if len(rows) > height-1 {
		hidden := len(rows) - (height - 2)
		rows = append(rows[:height-2], fmt.Sprintf("and %d more", hidden))
	}
	var b strings.Builder
	if !w.wrote {
		w.wrote = true
		b.WriteString("\x1b[2J") // clear the screen
	}
	b.WriteString("\x1b[H") // to the upper left corner
	for _, row := range rows {
		b.WriteString(fit(row, width) + "\x1b[K\n") // and delete the rest of the line
	}
	b.WriteString("\x1b[J") // and of the screen
	_, err = io.WriteString(w.screen, b.String())
	return err
}
