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

// minInterval keeps a watcher from being a load for the store.
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
			if f, ok := a.stdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
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
	last  string // what the last table was about
}

// run looks at the store until ctx ends. That a signal ended it is the way it is
// meant to end.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		lines, err := linesOf(ctx, w.client, w.prefix)
		if err == nil {
			err = w.write(lines)
		}
		if ctx.Err() != nil {
			var by *endedBy
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

func (w *watcher) write(lines []holdfast.Line) error {
	if w.screen != nil && !w.json {
		return w.draw(lines)
	}
	about := subject(lines)
	if w.wrote && about == w.last {
		return nil
	}
	w.wrote, w.last = true, about
	now := time.Now()
	if w.json {
		locks := make([]summaryJSON, len(lines))
		for i, l := range lines {
			locks[i] = lineSummary(l)
		}
		return w.outJSON(struct {
			Time  time.Time     `json:"time"`
			Locks []summaryJSON `json:"locks"`
		}{now, locks})
	}
	fmt.Fprintln(w.stdout(), now.Format(time.RFC3339))
	return table(w.stdout(), listing(lines))
}

// subject names who is in the lines, so that two looks can be compared.
func subject(lines []holdfast.Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%q %d", l.Name, l.Limit)
		for _, t := range l.Tickets {
			fmt.Fprintf(&b, " %s %d", t.ID, t.State)
		}
	}
	return b.String()
}

// draw writes the table over the last one.
func (w *watcher) draw(lines []holdfast.Line) error {
	width, height, err := term.GetSize(int(w.screen.Fd()))
	if err != nil || width < 20 || height < 3 {
		width, height = 80, 24
	}
	var text bytes.Buffer
	if err := table(&text, listing(lines)); err != nil {
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
