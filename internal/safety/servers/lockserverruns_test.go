package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/internal/safety/torture"
)

// lockServerConfig returns what the runs of lock servers have in common. No name is a
// semaphore's: permits end with their server.
func lockServerConfig(t *testing.T, s uint64) torture.Config {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if *seed > 0 {
		s = *seed
	}
	cfg := torture.Config{
		Duration: *runFor, Processes: clients, Goroutines: 2, Names: 3, TTL: 3 * time.Second, Pace: 2, Seed: s, Slack: 10 * time.Second,
		Open: anylock.OpenDriver, Command: []string{self, asClient}, Long: often,
		Repeat: fmt.Sprintf("go test ./internal/safety/servers -run '%s$' -v -timeout 0 -servers.for %v -servers.seed %d", t.Name(), *runFor, s),
	}
	if *leaseFor > 0 {
		cfg.TTL = *leaseFor
	}
	return cfg
}

// losses is a history that notes which holds were lost. It leaves out those of which the
// client learned when less than half of their first lease was left: their grant came late,
// and no server had the time to renew them.
type losses struct {
	io.Writer
	ttl      time.Duration
	straight int // the client straight at the store, which no fault strikes; -1: none
	got      map[checker.Key]checker.Event
	lost     []loss
	late     int
	missed   []int64 // when the client straight at the store missed an answer
}

// loss is a hold that was lost.
type loss struct {
	from, to int64 // its last lease
	text     string
}

// split returns the losses that a server could have prevented, and the number of others:
// the client straight at the store missed an answer in their last lease, too, so the store
// or the machine stood still.
func (l *losses) split() (kept []string, stalled int) {
	for _, lost := range l.lost {
		if slices.ContainsFunc(l.missed, func(at int64) bool { return lost.from <= at && at <= lost.to }) {
			stalled++
			continue
		}
		kept = append(kept, lost.text)
	}
	return kept, stalled
}

// Write notes one event, a line of JSON.
func (l *losses) Write(b []byte) (int, error) {
	var e checker.Event
	if err := json.Unmarshal(b, &e); err != nil {
		return 0, err
	}
	key := checker.Key{P: e.P, K: e.K, N: e.N}
	switch g, held := l.got[key]; {
	case e.What == checker.Upset:
		if e.P == l.straight {
			l.missed = append(l.missed, e.T)
		}
	case e.What == checker.Got:
		l.got[key] = e
	case held && e.What == checker.Still:
		g.End = max(g.End, g.T+int64(l.ttl)) // it was renewed in time once
		l.got[key] = g
	case !held || e.What != checker.Told && e.What != checker.Done:
	case e.What == checker.Done && e.Err != checker.ErrLost:
		delete(l.got, key)
	case time.Duration(g.End-g.T) < l.ttl/2:
		delete(l.got, key)
		l.late++
	default:
		delete(l.got, key)
		text := fmt.Sprintf("client %d, call %d, token %d, %v after the grant: %s", e.P, e.N, g.Token, time.Duration(e.T-g.T), e.Text)
		l.lost = append(l.lost, loss{e.T - int64(l.ttl), e.T, text})
	}
	return l.Writer.Write(b)
}

// runLockServers carries out a run, fails the test for each violation, and returns the
// holds that were lost.
// straight is the client straight at the store; -1: there is none.
func runLockServers(t *testing.T, cfg torture.Config, straight int) []string {
	l := &losses{Writer: io.Discard, ttl: cfg.TTL, straight: straight, got: make(map[checker.Key]checker.Event)}
	if *history != "" {
		f, err := os.Create(filepath.Join(*history, strings.ReplaceAll(t.Name(), "/", "-")+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		l.Writer = f
	}
	cfg.History = l
	r, err := torture.Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("%v; again: %s", err, cfg.Repeat)
	}
	for _, v := range r.Violations {
		t.Error(v)
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", line)
	lost, stalled := l.split()
	t.Logf("%d holds were lost of which the client learned late, and %d while the store answered nobody", l.late, stalled)
	if r.Grants < leastGrants {
		t.Errorf("%d grants", r.Grants)
	}
	return lost
}

func TestLossesWhileTheStoreAnswersNobodyAreCountedApart(t *testing.T) {
	for at, want := range map[int64]int{400: 1, 600: 0, 3400: 0, 3600: 1} { // in ms
		l := &losses{Writer: io.Discard, ttl: 3 * time.Second, straight: 4, got: make(map[checker.Key]checker.Event)}
		for _, e := range []checker.Event{
			{What: checker.Got, P: 1, N: 7, T: 0, End: 3000e6},
			{What: checker.Upset, P: 2, T: 1000e6},
			{What: checker.Upset, P: 4, T: at * 1e6},
			{What: checker.Told, P: 1, N: 7, T: 3500e6},
		} {
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if lost, stalled := l.split(); len(lost) != want || len(lost)+stalled != 1 {
			t.Errorf("missed at %d ms: lost %q, and %d while the store answered nobody", at, lost, stalled)
		}
	}
}
