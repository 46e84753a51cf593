package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// process is a client, as Run sees it.
type process struct {
	p, k  int
	in    io.WriteCloser
	cmd   *exec.Cmd // nil for a client in this process
	abort context.CancelFunc
	said  tail

	hello, bye, gone chan struct{} // closed when the client has sent the message; gone: when it sends nothing more
	healed           chan int64
	broke            string // why the client cannot work; written before hello or bye is closed
	killed           bool   // by the run; written under run.mu, only by the goroutine of Run
	killedAt         int64

	mu sync.Mutex // guards in
}

// tail keeps the first and the last part of a process's standard error: a crash
// names its reason at its beginning.
type tail struct {
	mu   sync.Mutex
	head []byte
	rest bytes.Buffer
	cut  bool // the beginning of rest was dropped
}

const maxTail = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(b), maxTail-len(t.head))
	t.head = append(t.head, b[:n]...)
	t.rest.Write(b[n:])
	if n := t.rest.Len() - maxTail; n > 0 {
		t.rest.Next(n)
		t.cut = true
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	between := ""
	if t.cut {
		between = "\n[...]\n"
	}
	return string(t.head) + between + t.rest.String()
}

// start starts a client and sends it its setup.
func (r *run) start(p, k int, probe bool) (*process, error) {
	x := &process{p: p, k: k, hello: make(chan struct{}), bye: make(chan struct{}), gone: make(chan struct{}), healed: make(chan int64, 1)}
	var out io.Reader
	if len(r.Command) == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		ir, iw := io.Pipe()
		or, ow := io.Pipe()
		x.in, x.abort, out = iw, cancel, or
		r.clients.Go(func() {
			err := Client(ctx, ir, ow, r.Open)
			if err != nil {
				fmt.Fprintln(&x.said, err)
			}
			_ = ow.Close()
			// The reader of orders ends when the other side closes.
			_, _ = io.Copy(io.Discard, ir)
		})
	} else {
		command := r.Command
		if r.CommandOf != nil && !probe {
			command = r.CommandOf(p)
		}
		x.cmd = exec.Command(command[0], command[1:]...)
		x.cmd.Stderr = &x.said
		dieWithParent(x.cmd)
		var err error
		if x.in, err = x.cmd.StdinPipe(); err != nil {
			return nil, fmt.Errorf("torture: %w", err)
		}
		if out, err = x.cmd.StdoutPipe(); err != nil {
			return nil, fmt.Errorf("torture: %w", err)
		}
		if err = x.cmd.Start(); err != nil {
			return nil, fmt.Errorf("torture: a client: %w", err)
		}
		x.abort = func() { _ = x.cmd.Process.Kill() }
	}
	r.clients.Go(func() { r.listen(x, out) })
	store := r.Store
	if r.StoreOf != nil && !probe {
		store = r.StoreOf(p)
	}
	s := setup{Store: store, Prefix: r.prefix, P: p, K: k, Seed: r.Seed, TTL: r.TTL, Goroutines: r.Goroutines,
		Tokens: r.traits.Fencing, Probe: probe, Takes: r.maxProbeWait() + r.Slack + time.Second, Long: r.Long}
	for _, n := range r.names {
		s.Names = append(s.Names, wireName{n.name, n.limit, n.alone})
	}
	x.send(s)
	return x, nil
}

// send writes one line to a client. If the client no longer reads, listen
// notices.
func (x *process) send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // all of this package's types can be marshalled
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	_, _ = x.in.Write(append(b, '\n'))
}

// listen handles the messages of a client, until there are no more.
func (r *run) listen(x *process, out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e checker.Event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // a line of the runtime, or one cut by a kill
		}
		switch e.What {
		case hello:
			close(x.hello)
		case bye:
			if e.Err != "" {
				r.mu.Lock()
				r.untidy = true
				r.mu.Unlock()
			}
			close(x.bye)
		case healed:
			select {
			case x.healed <- e.Value:
			default: // the run no longer waits
			}
		case broke:
			x.broke = e.Text
		case checker.Read, checker.Write:
			e = r.access(x, e)
		}
		r.add(e)
	}
	if x.cmd != nil {
		_ = x.cmd.Wait()
	}
	end := checker.Event{What: checker.Gone, P: x.p, K: x.k, T: checker.Now()}
	r.mu.Lock()
	if x.killed {
		end.T, end.Text = x.killedAt, "killed"
	}
	r.addLocked(end)
	r.mu.Unlock()
	close(x.gone)
}

// access sends the register's answer to a client. The event is stamped here, in
// the order in which the register served.
func (r *run) access(x *process, e checker.Event) checker.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := checker.Key{P: e.P, K: e.K, N: e.N}
	var a checker.Answer
	if e.What == checker.Read {
		a = r.register.Read(e.Name, e.Token, key)
	} else {
		a = r.register.Write(e.Name, e.Token, key, e.Value, e.Twin)
	}
	e.T, e.OK = checker.Now(), a.OK
	r.addLocked(e)
	r.clients.Go(func() { x.send(order{Do: "answer", N: e.N, OK: a.OK, Val: a.Value, Twin: a.Twin}) })
	return checker.Event{}
}
