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

// waitDisplay shows that run waits, and the holder: on a terminal in one line that
// is kept up to date, elsewhere once. No lock is taken under mu.
type waitDisplay struct {
	r            *runner
	tty          int // descriptor of standard error, -1 if that is no terminal
	done         sync.WaitGroup
	mu           sync.Mutex
	closed       bool // nothing more is written; guarded by mu
	drawing      bool // the line of a terminal; guarded by mu
	saidNotReady bool // that the store is not ready; guarded by mu

	ctx    context.Context // until end
	stop   context.CancelFunc
	giveUp context.CancelCauseFunc // ends the wait itself
	texts  chan string             // the next texts of a terminal's line
}

const (
	redrawInterval  = time.Second // how often the line is written
	ticksPerInspect = 5           // draws between two looks at the queue
)

func newWaitDisplay(r *runner, giveUp context.CancelCauseFunc) *waitDisplay {
	w := &waitDisplay{r: r, tty: -1, giveUp: giveUp, texts: make(chan string, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	if f, ok := r.console.stderr().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.tty = int(f.Fd())
	}
	return w
}

// lockWait shows that the wait has begun, and why.
func (w *waitDisplay) lockWait(_ context.Context, e holdfast.LockWaitInfo) {
	if e.Err != nil {
		w.showStoreError(e.Err)
	} else {
		w.showTurn(e.Holder)
	}
}

// showTurn shows who holds the lock.
func (w *waitDisplay) showTurn(holder holdfast.Holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.saidNotReady && holder == (holdfast.Holder{}) {
		return
	}
	w.done.Go(func() {
		if err := w.r.checkSelfWait(w.ctx); err != nil {
			w.giveUp(err)
		}
	})
	w.writeLocked(eventJSON{Event: "waiting", Holder: holderToJSON(holder)}, "held by "+holderText(holder))
}

// noteBackgroundError keeps the error of a renewal: the reason for a doubt. The release
// of a hold in doubt reports errors, too, which are none.
func (r *runner) noteBackgroundError(_ context.Context, e holdfast.BackgroundErrorInfo) {
	if e.Op == "renew" {
		r.renewalError.Store(&e.Err)
	}
}

// showStoreError shows, once, that the lock waits for a store that is not
// ready.
func (w *waitDisplay) showStoreError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.saidNotReady {
		return
	}
	w.saidNotReady = true
	w.writeLocked(eventJSON{Event: "waiting", Error: message(err)}, "the store is not ready: "+message(err))
}

// writeLocked writes that run waits, and why.
func (w *waitDisplay) writeLocked(e eventJSON, why string) {
	switch {
	case w.r.console.json:
		w.r.event(e)
	case w.r.console.quiet:
	case w.tty < 0:
		fmt.Fprintf(w.r.console.stderr(), "holdfast: waiting for %s, %s\n", shown(w.r.name), why)
	case w.drawing:
		select {
		case w.texts <- why:
		default:
		}
	default:
		w.drawing = true
		w.done.Go(func() { w.show(why) })
	}
}

// end returns when nothing more will be written.
func (w *waitDisplay) end() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.stop()
	w.done.Wait()
}

// show keeps the line up to date until end.
func (w *waitDisplay) show(status string) {
	defer func() { _, _ = io.WriteString(w.r.console.stderr(), "\r\x1b[K") }()
	tick := time.NewTicker(redrawInterval)
	defer tick.Stop()
	inspecting := make(chan struct{}, 1) // in the background, so that a slow store does not delay the line
	for n := 0; ; n++ {
		if n%ticksPerInspect == 0 && n > 0 {
			select {
			case inspecting <- struct{}{}:
				w.done.Go(func() {
					if text := w.queueText(w.ctx); text != "" {
						select {
						case w.texts <- text:
						case <-w.ctx.Done():
						}
					}
					<-inspecting
				})
			default:
			}
		}
		row := fmt.Sprintf("holdfast: waiting for %s for %s, %s",
			shown(w.r.name), formatDuration(time.Since(w.r.startedAt).Truncate(time.Second)), status)
		_, _ = io.WriteString(w.r.console.stderr(), "\r"+fit(row, w.width())+"\x1b[K")
		select {
		case <-tick.C:
		case status = <-w.texts:
		case <-w.ctx.Done():
			return
		}
	}
}

// queueText asks the store for the holder and this process's place in the queue.
func (w *waitDisplay) queueText(ctx context.Context) string {
	queue, err := w.r.client.Inspect(ctx, w.r.name)
	if err != nil || len(queue.Holders) == 0 {
		return ""
	}
	text := "held by " + holderText(queue.Holders[0].Holder)
	if n := len(queue.Holders); n > 1 {
		text += fmt.Sprintf(" and %d more", n-1)
	}
	host, _ := os.Hostname()
	for i, t := range queue.Waiters {
		if t.Holder.PID == os.Getpid() && t.Holder.Host == host && i > 0 {
			text += fmt.Sprintf(", %d before this one", i)
		}
	}
	return text
}

func (w *waitDisplay) width() int {
	width, _, err := term.GetSize(w.tty)
	if err != nil || width < 20 {
		return 80
	}
	return width
}

// fit cuts a line to the width of the terminal, one column less than that: a
// line that wraps cannot be overwritten. Every character that is not ASCII is
// taken for a wide one.
func fit(text string, width int) string {
	columns := 1
	var b strings.Builder
	for _, c := range text {
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
