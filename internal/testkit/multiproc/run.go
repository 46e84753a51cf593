package multiproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Run runs all tests on a store, each with a name of its own.
func Run(t *testing.T, s Store) {
	if s.Slack == 0 {
		s.Slack = time.Second
	}
	// Each test returns in words how it was late; all else it reports itself.
	for name, test := range map[string]func(*testing.T, Store, string) (late string){
		"count exactly":         countExactly,
		"killed holder":         killedHolder,
		"paused holder":         pausedHolder,
		"killed waiter at head": killedWaiter,
		"paused waiter at head": pausedWaiter,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := s
			if s.Fresh != nil {
				s.Target = s.Fresh(t)
			}
			// A process that gets no processor for a while is late, but not each time.
			for tries := 4; ; tries-- {
				late := test(t, s, "procs/"+name+"/"+strconv.FormatInt(time.Now().UnixNano(), 36))
				if late == "" || t.Failed() {
					return
				}
				if tries == 1 {
					t.Error(late)
					return
				}
				t.Logf("once more: %s", late)
			}
		})
	}
}

func (s Store) lock(name string) command { return command{Op: "lock", Name: name, TTL: s.TTL} }

func unlock(name string) command { return command{Op: "unlock", Name: name} }

// latestExpiry is the longest time for which an expired ticket may block the
// queue.
func (s Store) latestExpiry() time.Duration {
	return s.TTL + s.TTL/20 + 250*time.Millisecond + s.Slack
}

// countExactly: 8 processes with 4 goroutines each count to 320.
func countExactly(t *testing.T, s Store, name string) (late string) {
	file := filepath.Join(t.TempDir(), "count")
	if err := os.WriteFile(file, []byte("0 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var cs []*client
	for range 8 {
		c := s.start(t)
		for range 4 {
			c.send(command{Op: "count", Name: name, TTL: s.TTL, File: file, Times: 10})
		}
		cs = append(cs, c)
	}
	for _, c := range cs {
		c.wait("counted", 4)
		if es := c.all("failed"); len(es) > 0 {
			t.Error(es)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := strings.Cut(string(b), " "); n != "320" {
		t.Errorf("counted to %s, want 320", n)
	}
	return ""
}

// killedHolder: SIGKILL of the holder lets the next in by the TTL, and not
// before the lease has ended.
func killedHolder(t *testing.T, s Store, name string) (late string) {
	a, b := s.start(t), s.start(t)
	a.send(s.lock(name))
	held := a.wait("held", 1)
	b.send(s.lock(name))
	b.wait("asked", 1)
	time.Sleep(s.TTL / 2) // b waits, a has renewed
	a.signal(syscall.SIGKILL)
	killed := bootTime()
	got := b.wait("held", 1)
	if waited := got.At - killed; waited > s.latestExpiry() {
		late = fmt.Sprintf("the next holder came %v after the kill, TTL %v", waited, s.TTL)
	}
	if got.Token <= held.Token {
		t.Errorf("token %d after %d", got.Token, held.Token)
	}
	b.send(unlock(name))
	b.wait("unlocked", 1)
	return late
}

// pausedHolder: a holder stopped past its lease knows at its first look that
// it holds no longer (F12).
func pausedHolder(t *testing.T, s Store, name string) (late string) {
	a, b := s.start(t), s.start(t)
	a.send(s.lock(name))
	held := a.wait("held", 1)
	b.send(s.lock(name))
	b.wait("asked", 1)
	// Stopped in the middle of a request, it would hold what the store holds
	// for a request: on SQLite, that is the file.
	time.Sleep(s.TTL / 8)
	a.stop()
	got := b.wait("held", 1)
	a.signal(syscall.SIGCONT)
	resumed := bootTime()
	lost := a.wait("lost", 1)
	if got.Token <= held.Token {
		t.Errorf("token %d after %d", got.Token, held.Token)
	}
	if after := lost.At - resumed; after > s.Slack {
		late = fmt.Sprintf("the loss was seen %v after the pause", after)
	}
	if n := len(a.all("lost")); n != 1 {
		t.Errorf("the loss was told %d times", n)
	}
	b.send(unlock(name))
	b.wait("unlocked", 1)
	if n := len(b.all("lost")); n != 0 {
		t.Error("the paused process took the next holder's lock away")
	}
	return late
}

// killedWaiter: SIGKILL of the first waiter does not stop the queue (F48).
func killedWaiter(t *testing.T, s Store, name string) (late string) {
	a, b, c := s.start(t), s.start(t), s.start(t)
	a.send(s.lock(name))
	a.wait("held", 1)
	b.send(s.lock(name))
	b.wait("asked", 1)
	time.Sleep(s.TTL / 4)
	c.send(s.lock(name))
	c.wait("asked", 1)
	time.Sleep(s.TTL / 4)
	b.signal(syscall.SIGKILL)
	killed := bootTime()
	a.send(unlock(name))
	a.wait("unlocked", 1)
	got := c.wait("held", 1)
	if waited := got.At - killed; waited > s.latestExpiry() {
		late = fmt.Sprintf("the next holder came %v after the kill, TTL %v", waited, s.TTL)
	}
	c.send(unlock(name))
	c.wait("unlocked", 1)
	return late
}

// pausedWaiter: a place granted in its sleep passes on, and on waking it is
// not believed (F49).
func pausedWaiter(t *testing.T, s Store, name string) (late string) {
	a, b, c := s.start(t), s.start(t), s.start(t)
	a.send(s.lock(name))
	a.wait("held", 1)
	b.send(s.lock(name))
	b.wait("asked", 1)
	time.Sleep(s.TTL / 4)
	c.send(s.lock(name))
	c.wait("asked", 1)
	time.Sleep(s.TTL / 4)
	b.stop()
	stopped := bootTime()
	a.send(unlock(name))
	a.wait("unlocked", 1)
	got := c.wait("held", 1)
	if waited := got.At - stopped; waited > s.latestExpiry() {
		late = fmt.Sprintf("the next holder came %v after the pause, TTL %v", waited, s.TTL)
	}
	b.signal(syscall.SIGCONT)
	time.Sleep(s.TTL / 4) // time to do wrong
	c.send(unlock(name))
	over := c.wait("unlocked", 1)
	after := b.wait("held", 1)
	switch {
	case after.At >= over.At:
	case len(c.all("lost")) > 0: // it got no processor for as long as its lease
		late = "the other's hold was lost before its release"
	default:
		t.Errorf("both held: the paused waiter from %v, the other until %v", after.At, over.At)
	}
	if after.Token <= got.Token {
		t.Errorf("token %d after %d", after.Token, got.Token)
	}
	b.send(unlock(name))
	b.wait("unlocked", 1)
	return late
}
