package stock

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// envSeller is the variable that makes this binary a seller. Its value
// describes the sales.
const envSeller = "HOLDFAST_STOCK_SELLER"

// seller is one selling process.
type seller struct {
	URLs  []string
	Index int
	Tasks int // goroutines
	Each  int // sales of each goroutine
}

// sale returns the id and the units of a sale, the same in every process for
// the same index.
func (s seller) sale(task, i int) (string, int64) {
	return fmt.Sprintf("%d/%d/%d", s.Index, task, i), int64(1 + (task+i)%3)
}

// child sells if this process is a seller. It prints each sale with its
// outcome, and nothing for a sale of unknown outcome.
func child() bool {
	text, ok := os.LookupEnv(envSeller)
	if !ok {
		return false
	}
	var s seller
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func (s seller) run(ctx context.Context) error {
	st, err := openAgain(ctx, s.URLs)
	if err != nil {
		return err
	}
	defer st.Close()
	var all sync.WaitGroup
	var mu sync.Mutex
	for task := range s.Tasks {
		all.Go(func() {
			for i := range s.Each {
				id, units := s.sale(task, i)
				r, e := st.Sell(ctx, "phone", units, id)
				for errors.Is(e, ErrUnknown) || errors.Is(e, ErrUnavailable) {
					r, e = st.Sell(ctx, "phone", units, id)
				}
				word := "sold"
				if errors.Is(e, ErrSoldOut) {
					word, e = "out", nil
				}
				mu.Lock()
				if e != nil || word == "sold" && r.Units != units {
					err = fmt.Errorf("%s: %v, %w", id, r, e)
				}
				fmt.Println(word, id, units)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return err
}

// openAgain opens a client on servers that may be failing at the moment.
func openAgain(ctx context.Context, urls []string) (st *Stock, err error) {
	for range 100 {
		if st, err = Open(ctx, &Options{Patience: 2 * time.Second, SoldOutFor: -1}, urls...); err == nil {
			return st, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

// lossyProxy is a proxy that carries connections to a server. It ends some of
// them when an answer comes, and so loses the answer.
type lossyProxy struct {
	l    net.Listener
	to   string
	rate float64
	done sync.WaitGroup

	mu    sync.Mutex
	rand  *rand.Rand
	conns map[net.Conn]bool
	over  bool
	lost  int
}

func newLossy(t *testing.T, s *servers.RedisServer, rate float64) *lossyProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &lossyProxy{l: l, to: s.Addr(), rate: rate, rand: rand.New(rand.NewPCG(1, uint64(s.Port))), conns: map[net.Conn]bool{}}
	w.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.done.Go(func() { w.carry(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.mu.Lock()
		w.over = true
		for c := range w.conns {
			c.Close()
		}
		w.mu.Unlock()
		w.done.Wait()
	})
	return w
}

func (w *lossyProxy) keep(cs ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range cs {
		if w.over {
			c.Close()
		}
		w.conns[c] = true
	}
	return !w.over
}

func (w *lossyProxy) drop(cs ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range cs {
		c.Close()
		delete(w.conns, c)
	}
}

func (w *lossyProxy) loses() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rand.Float64() < w.rate {
		w.lost++
		return true
	}
	return false
}

func (w *lossyProxy) carry(client net.Conn) {
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		client.Close()
		return
	}
	if !w.keep(client, server) {
		return
	}
	defer w.drop(client, server)
	w.done.Go(func() {
		_, _ = io.Copy(server, client)
		w.drop(client, server)
	})
	buf := make([]byte, 64<<10)
	for n := 0; ; n++ {
		k, err := server.Read(buf)
		if err != nil || n > 10 && w.loses() { // not the greeting
			return
		}
		if _, err := client.Write(buf[:k]); err != nil {
			return
		}
	}
}

// world is the test's record of the sellers' output.
type world struct {
	*testing.T
	mu   sync.Mutex
	said map[string]string
	sold int64
	grew chan struct{}
	runs []*exec.Cmd
	end  sync.WaitGroup
}

// start runs a seller and records its output. The seller may be killed.
func (w *world) start(s seller) *exec.Cmd {
	w.Helper()
	self, err := os.Executable()
	must(w, err)
	text, err := json.Marshal(s)
	must(w, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envSeller+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(w, err)
	must(w, cmd.Start())
	w.runs = append(w.runs, cmd)
	w.end.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var word, id string
			var units int64
			if _, err := fmt.Sscan(lines.Text(), &word, &id, &units); err != nil {
				w.Errorf("a seller says %q", lines.Text())
				continue
			}
			w.mu.Lock()
			if was := w.said[id]; was == "sold" && word != was {
				w.Errorf("%s was sold, and is now %s", id, word)
			} else if was == "" && word == "sold" {
				w.sold += units
			}
			w.said[id] = word
			w.mu.Unlock()
			select {
			case w.grew <- struct{}{}:
			default:
			}
		}
		err := cmd.Wait()
		if err != nil && !strings.Contains(err.Error(), "killed") {
			w.Errorf("a seller ended: %v", err)
		}
	})
	return cmd
}

// until waits until that many units are sold.
func (w *world) until(units int64) {
	w.Helper()
	limit := time.After(2 * time.Minute)
	for {
		w.mu.Lock()
		sold := w.sold
		w.mu.Unlock()
		if sold >= units {
			return
		}
		select {
		case <-w.grew:
		case <-limit:
			w.Fatalf("only %d units are sold after two minutes", sold)
		}
	}
}

// TestProcesses sells from eight processes with 64 goroutines each, across
// three servers. Answers are lost, two processes are killed and others take
// over their sales, and a server is killed and comes back with its data from
// disk.
func TestProcesses(t *testing.T) {
	const processes, units, shards = 8, 6000, 6
	var started []*servers.RedisServer
	var wires []*lossyProxy
	var direct, through []string
	for range 3 {
		s := servers.Redis(t, servers.RedisOptions{Durable: true})
		w := newLossy(t, s, 0.02)
		started, wires = append(started, s), append(wires, w)
		direct = append(direct, s.URL(""))
		through = append(through, "redis://"+w.l.Addr().String())
	}
	st, err := Open(t.Context(), &Options{Patience: 20 * time.Second}, direct...)
	must(t, err)
	defer st.Close()
	must(t, st.Set(t.Context(), "phone", units, shards))

	w := &world{T: t, said: map[string]string{}, grew: make(chan struct{}, 1)}
	t.Cleanup(func() {
		for _, cmd := range w.runs {
			_ = cmd.Process.Kill()
		}
		w.end.Wait()
	})
	var sellers []seller
	var cmds []*exec.Cmd
	for i := range processes {
		sellers = append(sellers, seller{through, i, 64, 10})
		cmds = append(cmds, w.start(sellers[i]))
	}
	next := 0
	again := func() { // another process takes over the sales of one that still runs
		for ; next < processes; next++ {
			err := cmds[next].Process.Kill()
			if errors.Is(err, os.ErrProcessDone) {
				continue // it was quicker than the others
			}
			must(t, err)
			w.start(sellers[next])
			next++
			return
		}
		t.Fatal("all processes have ended before their sales")
	}
	w.until(units * 1 / 8)
	again()
	w.until(units * 2 / 8)
	started[1].Restart(t)
	w.until(units * 3 / 8)
	must(t, st.Rebalance(t.Context(), "phone", shards+3))
	w.until(units * 5 / 8)
	again()
	w.end.Wait()

	var sold int64
	for _, s := range sellers {
		for task := range s.Tasks {
			for i := range s.Each {
				id, n := s.sale(task, i)
				r, err := st.Receipt(t.Context(), "phone", id)
				said := w.said[id]
				if err != nil && !errors.Is(err, ErrNoSale) || (r.State == Sold) != (said == "sold") || said == "" {
					t.Errorf("of %s it was said %q, and it is %v, %v", id, said, r, err)
				}
				if r.State == Sold {
					sold += r.Units
					if r.Units != n {
						t.Errorf("%s was to be %d units, and is %d", id, n, r.Units)
					}
				}
			}
		}
	}
	count(t, st, "phone", units, units-sold)
	lost := 0
	for _, wire := range wires {
		lost += wire.lost
	}
	if units-sold > 2 || lost == 0 {
		t.Errorf("%d units are left, and %d answers were lost", units-sold, lost)
	}
	t.Logf("sold %d in %d sales; %d connections were cut at an answer", sold, len(w.said), lost)
}
