package drivertest

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
)

// The case "crowd" is a soak with these flags, on any store:
//
//	go test ./etcdlock -run 'TestLocks/crowd' -v -timeout 0 -crowd.runs=50 -crowd.clients=100 -crowd.loops=14
var (
	crowdRuns    = flag.Int("crowd.runs", 1, "how often the case crowd of the locks' suite runs")
	crowdClients = flag.Int("crowd.clients", 20, "how many clients take turns in the case crowd")
	crowdLoops   = flag.Int("crowd.loops", 0, "how many processes keep the processors busy beside the case crowd")
	crowdFor     = flag.Duration("crowd.for", 2*time.Minute, "how long each client of the case crowd may take for its turns")
)

// crowdTurns is the number of turns of each client.
const crowdTurns = 3

var crowdCases = []lockCase{
	{name: "crowd", about: "a crowd takes turns on one name, on a busy machine too: all finish, alone and in order (F106)", run: func(w *lockWorld) {
		stop := w.busyLoops(*crowdLoops)
		defer stop()
		finished := 0
		for run := range *crowdRuns {
			start := time.Now()
			good := w.takeTurns(fmt.Sprintf("%s/%d", w.name, run))
			if good {
				finished++
			}
			if *crowdRuns > 1 {
				w.Logf("run %d: finished %v, %v", run+1, good, time.Since(start).Round(time.Millisecond))
			}
		}
		if finished != *crowdRuns {
			w.Errorf("%d of %d runs finished", finished, *crowdRuns)
		}
	}},
}

// takeTurns opens clients with the default TTL, and has them take turns on one
// name. It reports whether each client got its turns, one at a time and with
// growing tokens.
func (w *lockWorld) takeTurns(name string) bool {
	w.Helper()
	clients := make([]*holdfast.Client, *crowdClients)
	var opening sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range clients {
		opening.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			c, err := holdfast.New(Strict(w.T, w.h.Open(w.T)))
			if err != nil {
				w.Errorf("New: %v", err)
				return
			}
			clients[i] = c
		})
	}
	opening.Wait()
	var bad atomic.Bool
	var n, inside atomic.Int32
	var last atomic.Uint64
	fails := func(format string, args ...any) {
		bad.Store(true)
		w.Errorf(format, args...)
	}
	var turns sync.WaitGroup
	for _, c := range clients {
		if c == nil {
			bad.Store(true)
			continue
		}
		turns.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), *crowdFor)
			defer cancel()
			for range crowdTurns {
				h, err := c.Mutex(name).Lock(ctx)
				if err != nil {
					fails("Lock: %v", err)
					return
				}
				if k := inside.Add(1); k != 1 {
					fails("%d inside", k)
				}
				if before := last.Swap(h.Token()); w.traits.Fencing && h.Token() <= before {
					fails("token %d after %d", h.Token(), before)
				}
				time.Sleep(100 * time.Microsecond) // so that a second one is seen
				n.Add(1)
				inside.Add(-1)
				if err := h.Unlock(); err != nil {
					fails("Unlock: %v", err)
				}
			}
		})
	}
	turns.Wait()
	if want := int32(len(clients) * crowdTurns); n.Load() != want {
		fails("%d turns, want %d", n.Load(), want)
	}
	var closing sync.WaitGroup
	for _, c := range clients {
		if c != nil {
			closing.Go(func() { _ = c.Close() })
		}
	}
	closing.Wait()
	return !bad.Load()
}

// busyLoops starts processes that keep the processors busy until stop is called,
// or this process ends.
func (w *lockWorld) busyLoops(n int) (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for range n {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null")
		if err := cmd.Start(); err != nil {
			w.Errorf("a busy loop: %v", err)
			break
		}
		ended.Go(func() { _ = cmd.Wait() })
	}
	return func() { cancel(); ended.Wait() }
}
