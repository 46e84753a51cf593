//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-go/holdfast"
)

// waitLine says that run waits, and for whom: on a terminal in one line that is
// kept up to date, elsewhere once.
type waitLine struct {
	r    *runner
	tty  int // descriptor of standard error, -1 if that is no terminal
	stop chan struct{}
	done sync.WaitGroup
}

const (
	waitTick = time.Second // how often the line is written
	lookTick = 5           // after how many of them the store is asked again
)

func newWaitLine(r *runner) *waitLine {
	w := &waitLine{r: r, tty: -1, stop: make(chan struct{})}
	if f, ok := r.stderr().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.tty = int(f.Fd())
	}
	return w
}

// begin is told by the core that the wait has begun, on the goroutine that
// waits.
func (w *waitLine) begin(_ string, holder holdfast.Holder) {
	switch {
	case w.r.json:
		w.r.event(eventJSON{Event: "waiting", Holder: toJSON(holder)})
	case w.r.quiet:
	case w.tty < 0:
		fmt.Fprintf(w.r.stderr(), "holdfast: waiting for %s, held by %s\n", shown(w.r.name), holderText(holder))
	default:
		w.done.Go(func() { w.show(holderText(holder)) })
	}
}

// end returns when nothing more will be written.
func (w *waitLine) end() {
	close(w.stop)
	w.done.Wait()
}

// show keeps the line up to date until end.
func (w *waitLine) show(who string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer func() { _, _ = io.WriteString(w.r.stderr(), "\r\x1b[K") }()
	tick := time.NewTicker(waitTick)
	defer tick.Stop()
	fresh := make(chan string, 1) // asked beside, so that a slow store holds nothing up
	asking := make(chan struct{}, 1)
	for n := 0; ; n++ {
		if n%lookTick == 0 && n > 0 {
			select {
			case asking <- struct{}{}:
				w.done.Go(func() {
					if text := w.ask(ctx); text != "" {
						select {
						case fresh <- text:
						case <-ctx.Done():
						}
					}
					<-asking
				})
			default:
			}
		}
		line := fmt.Sprintf("holdfast: waiting for %s for %s, held by %s",
			shown(w.r.name), span(time.Since(w.r.asked).Truncate(time.Second)), who)
		_, _ = io.WriteString(w.r.stderr(), "\r"+fit(line, w.width())+"\x1b[K")
		select {
		case <-tick.C:
		case who = <-fresh:
		case <-w.stop:
			return
		}
	}
}

// ask asks the store who holds the lock now, and where in the line this process
// is.
func (w *waitLine) ask(ctx context.Context) string {
	line, err := w.r.client.Inspect(ctx, w.r.name)
	if err != nil || len(line.Holders()) == 0 {
		return ""
	}
	text := holderText(line.Holders()[0].Holder)
	if n := len(line.Holders()); n > 1 {
		text += fmt.Sprintf(" and %d more", n-1)
	}
	host, _ := os.Hostname()
	for i, t := range line.Waiters() {
		if t.Holder.PID == os.Getpid() && t.Holder.Host == host && i > 0 {
			text += fmt.Sprintf(", %d before this one", i)
		}
	}
	return text
}

func (w *waitLine) width() int {
	width, _, err := term.GetSize(w.tty)
	if err != nil || width < 20 {
		return 80
	}
	return width
}

// fit cuts a line to the width of the terminal, one column less than that: a
// line that wraps cannot be overwritten. Every character that is not ASCII is
// taken for a wide one.
func fit(line string, width int) string {
	columns := 1
	var b strings.Builder
	for _, c := range line {
		columns++
		if c > 0x7e {
			columns++
		}
		if columns > width {
			break
		}
		b.WriteRune(c)
	}
	return b.String()
}
