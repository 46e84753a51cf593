package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// event is a line that a program writes.
type event struct {
	T     int64 // CLOCK_BOOTTIME, ns: one clock for all processes
	What  string
	Token uint64 `json:",omitempty"`
	Err   string `json:",omitempty"`
}

// The lines that programs write.
const (
	ready  = "ready"
	ask    = "ask"    // it wants the lock
	got    = "got"    // and has it
	failed = "failed" // or not
	write  = "write"  // it took itself for the holder
	told   = "told"   // it was told of the loss
	out    = "out"    // it unlocks
	done   = "done"   // it has
)

func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

const env = "HOLDFAST_FAULTS"

// TestMain is also that of the programs.
func TestMain(m *testing.M) {
	if play := os.Getenv(env); play != "" {
		if err := perform(play); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// perform is the whole program: it does as it is told on its standard input, and
// ends with that.
func perform(play string) error {
	part := strings.Split(play, "|") // store, who, address, name
	c, err := find(part[0], part[1])
	if err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		e.T = now()
		_ = json.NewEncoder(os.Stdout).Encode(e)
	}
	r, err := c.open(part[2])
	if err != nil {
		return err
	}
	tell(event{What: ready})
	var h held
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rest := make(chan struct{}) // closed when the work is over
	locked := make(chan struct{})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "lock":
			tell(event{What: ask})
			go func() {
				x, err := r.lock(ctx, part[3])
				if err != nil {
					tell(event{What: failed, Err: err.Error()})
					return
				}
				h = x
				tell(event{What: got, Token: x.token()})
				close(locked)
				go hear(x, rest, tell)
				work(x, rest, tell)
			}()
		case "cancel":
			cancel()
		case "unlock":
			<-locked
			close(rest)
			tell(event{What: out})
			ctx, cancel := context.WithTimeout(context.Background(), 2*ttl)
			err := h.unlock(ctx)
			cancel()
			e := event{What: done}
			if err != nil {
				e.Err = err.Error()
			}
			tell(e)
		}
	}
	return nil
}

// beat is how often a holder writes, and what is too short to be called late.
const beat = 5 * time.Millisecond

// work writes as long as it may.
func work(h held, rest <-chan struct{}, tell func(event)) {
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		select {
		case <-rest:
			return
		case <-t.C:
			if h.valid() {
				tell(event{What: write})
			}
		}
	}
}

func hear(h held, rest <-chan struct{}, tell func(event)) {
	select {
	case <-rest:
	case <-h.lost():
		select {
		case <-rest:
		default:
			tell(event{What: told})
		}
	}
}

// program is a running one, as the script sees it.
type program struct {
	t    *testing.T
	wire *wire
	cmd  *exec.Cmd
	in   interface{ Write([]byte) (int, error) }

	mu    sync.Mutex
	said  []event
	news  chan struct{} // closed and made anew with each line
	ended chan struct{}
}

func run(t *testing.T, c contender, addr, lock string) *program {
	t.Helper()
	p := &program{t: t, wire: lay(t, addr, lock), news: make(chan struct{}), ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), env+"="+strings.Join([]string{c.store, c.name, p.wire.addr(), lock}, "|"))
	p.cmd.Stderr = os.Stderr
	if testing.Short() || !testing.Verbose() {
		p.cmd.Stderr = nil
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	lines, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(lines); s.Scan(); {
			var e event
			if json.Unmarshal(s.Bytes(), &e) == nil {
				p.mu.Lock()
				p.said = append(p.said, e)
				close(p.news)
				p.news = make(chan struct{})
				p.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		p.wire.speak()
		_ = p.cmd.Process.Kill()
		<-p.ended
		_ = p.cmd.Wait()
	})
	p.must(ready, 30*time.Second)
	return p
}

func (p *program) tell(order string) {
	if _, err := p.in.Write([]byte(order + "\n")); err != nil {
		p.t.Errorf("%s: %v", order, err)
	}
}

func (p *program) signal(s syscall.Signal) int64 {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	return now()
}

// first returns the first line of a kind, nil if there was none.
func (p *program) first(what string) *event {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.said {
		if p.said[i].What == what {
			return &p.said[i]
		}
	}
	return nil
}

// await waits for a line of one of the kinds, and returns nil if there is none in time.
func (p *program) await(within time.Duration, what ...string) *event {
	late := time.After(within)
	for {
		p.mu.Lock()
		news := p.news
		p.mu.Unlock()
		for _, w := range what {
			if e := p.first(w); e != nil {
				return e
			}
		}
		select {
		case <-news:
		case <-late:
			return nil
		}
	}
}

func (p *program) must(what string, within time.Duration) *event {
	p.t.Helper()
	e := p.await(within, what)
	if e == nil {
		p.t.Fatalf("no %q within %v", what, within)
	}
	return e
}

// writes returns those after a time.
func (p *program) writes(after int64) (ts []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.said {
		if e.What == write && e.T > after {
			ts = append(ts, e.T)
		}
	}
	return ts
}
