package redislock

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestF30_UnavailableServerLosesNothing checks servers that do not serve.
//
// Covers: F35.
func TestF30_UnavailableServerLosesNothing(t *testing.T) {
	dir := t.TempDir()
	s := servers.Redis(t, servers.RedisOptions{Args: []string{"--dir", dir, "--dbfilename", "x.rdb"}})
	m := enter(t, s, "")
	held := m.ticket("n")
	m.take(held, driver.Held)
	for _, c := range []struct {
		name     string
		make, no func()
	}{
		{"READONLY", func() { s.Do(t, "REPLICAOF", "127.0.0.1", "1") }, func() { s.Do(t, "REPLICAOF", "NO", "ONE") }},
		{"MASTERDOWN", func() {
			s.Do(t, "REPLICAOF", "127.0.0.1", "1")
			s.Do(t, "CONFIG", "SET", "replica-serve-stale-data", "no")
		}, func() { s.Do(t, "REPLICAOF", "NO", "ONE") }},
		{"NOREPLICAS", func() { s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1") },
			func() { s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0") }},
		{"MISCONF", func() {
			// A folder at the path of the file makes writing fail.
			if err := os.MkdirAll(filepath.Join(dir, "x.rdb", "y"), 0o700); err != nil {
				t.Fatal(err)
			}
			s.Do(t, "CONFIG", "SET", "save", "3600 1")
			s.Do(t, "BGSAVE")
			eventually(t, "saving fails", func() bool { return s.Info(t, "persistence", "rdb_last_bgsave_status") == "err" })
		}, func() { s.Do(t, "CONFIG", "SET", "save", "") }},
	} {
		c.make()
		_, err := m.Join(m.ctx(), m.ticket("other"), true)
		if !strings.Contains(fmt.Sprint(err), c.name) {
			t.Errorf("%s: Join says %v", c.name, err)
		}
		if _, passes := driver.IsNotReady(err); passes != (c.name != "MISCONF") {
			t.Errorf("%s passes: %v, %v", c.name, passes, err)
		}
		m.class(t, driver.Unavailable, held)
		c.no()
		m.keeps(held, driver.Held) // nothing was lost, and no request was half done
		if line, err := m.Inspect(m.ctx(), "n"); err != nil || len(line.Tickets) != 1 {
			t.Errorf("%s left %+v, %v", c.name, line.Tickets, err)
		}
	}
}

func TestF30_BusyServerLosesNothing(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{Args: []string{"--lua-time-limit", "10"}})
	m := enter(t, s, "")
	held := m.ticket("n")
	m.take(held, driver.Held)
	c, err := s.Dial(m.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send("EVAL", "while true do end", "0"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is busy", func() bool {
		_, err := s.Try("GET", "x")
		return strings.HasPrefix(fmt.Sprint(err), "BUSY")
	})
	m.class(t, driver.Unavailable, held)
	s.Do(t, "SCRIPT", "KILL")
	if _, err := c.Receive(); err == nil || wire.ClassOfAnswer(err.Error()) != driver.Unavailable {
		t.Errorf("a killed script: %v", err)
	}
	m.keeps(held, driver.Held)
}

func TestF30_LoadingServerLosesNothing(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	held := m.ticket("n")
	held.TTL = time.Hour
	m.take(held, driver.Held)
	s.Do(t, "EVAL", "for i = 1, 5000 do redis.call('SET', 'key' .. i, i) end", "0")
	s.Do(t, "SAVE")
	s.RestartLoading(t, "--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024")
	seen := false
	eventually(t, "the lock is there again", func() bool {
		ps, err := m.Renew(m.ctx(), []driver.Ref{ref(held)})
		if err == nil {
			err = ps[0].Err
		}
		if strings.Contains(fmt.Sprint(err), "LOADING") {
			seen = true
			if cl := driver.ClassOf(err); cl != driver.Unavailable {
				t.Fatalf("class %v: %v", cl, err)
			}
		}
		return err == nil && ps[0].State == driver.Held
	})
	if !seen {
		t.Error("the server never said that it was loading")
	}
}

func TestF35_MaxClients(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	held := m.ticket("n")
	m.take(held, driver.Held)
	m.keeps(held, driver.Held)
	c, err := s.Dial(m.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, args := range [][]string{{"CONFIG", "SET", "maxclients", "1"}, {"CLIENT", "KILL", "TYPE", "pubsub"}, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}} {
		if _, err := c.Do(args...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the refusal is seen", func() bool {
		_, err := m.Join(m.ctx(), m.ticket("other"), true)
		if err == nil {
			t.Fatal("a server without room for clients granted a lock")
		}
		return strings.Contains(err.Error(), "max number of clients") && driver.ClassOf(err) == driver.Unavailable
	})
	if _, err := c.Do("CONFIG", "SET", "maxclients", "100"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hold is confirmed", func() bool {
		ps, _ := m.Renew(m.ctx(), []driver.Ref{ref(held)})
		return ps[0].State == driver.Held
	})
}
