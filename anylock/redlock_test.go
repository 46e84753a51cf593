package anylock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestRedlockURLs(t *testing.T) {
	for url, want := range map[string][]string{
		"redlock://c,a:1,b/2": {"redis://a:1/2?restart_guard=on", "redis://b/2?restart_guard=on", "redis://c/2?restart_guard=on"},
		"redlocks://me:p%40w@c,[::1]:7,b?prefix=x&restart_guard=1m": {
			"rediss://me:p%40w@[::1]:7?prefix=x&restart_guard=1m", "rediss://me:p%40w@b?prefix=x&restart_guard=1m", "rediss://me:p%40w@c?prefix=x&restart_guard=1m",
		},
	} {
		if got, err := nodeURLs(url); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", url, got, err)
		}
	}
	for url, want := range map[string]string{
		"redlock:a,b,c":                         "no // after its scheme",
		"redlock://u:secret@a":                  "hosts is 1: write an odd number",
		"redlock://u:secret@a,b":                "hosts is 2: write an odd number",
		"redlock://u:secret@a,b,c,d":            "hosts is 4: write an odd number",
		"redlock://u:secret@a,b,":               "empty host",
		"redlock://u:secret@a,b,a":              "twice",
		"redlock://u:secret@a,b,c:x":            "not a number from 1 to 65535",
		"redlock://u:secret@a,b,c?prefx=1":      "unknown option",
		"redlock://u:secret@a,b,c?ca=x":         "needs the scheme rediss",
		"redlock://u:secret@a,b,c?timeout=fast": "timeout is not a duration",
	} {
		_, err := Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// TestRedlockOpensWithAMajority: a majority opens the lock, a server that starts
// later takes part, and a server that is named twice is refused.
func TestRedlockOpensWithAMajority(t *testing.T) {
	a, b, c := servers.Redis(t, servers.RedisOptions{}), servers.Redis(t, servers.RedisOptions{}), servers.Redis(t, servers.RedisOptions{})
	c.Crash(t)
	hosts := a.Addr() + "," + b.Addr() + "," + c.Addr()
	url := "redlock://" + hosts + "?restart_guard=off"
	exclude(t, mustOpen(t, url), mustOpen(t, url), true)

	d, err := OpenDriver(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c.Restart(t)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		fs, err := d.(driver.Checker).Check(t.Context())
		if err == nil && fs[0].Level == driver.OK {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the node that came later takes no part: %v, %v", fs, err)
		}
	}
	same := "redlock://" + strings.Replace(hosts, c.Addr(), strings.Replace(a.Addr(), "127.0.0.1", "localhost", 1), 1) + "?restart_guard=off"
	if _, err := Open(t.Context(), same); err == nil || !strings.Contains(err.Error(), "one and the same") {
		t.Errorf("one server under two names: %v", err)
	}
	b.Crash(t)
	c.Crash(t)
	if _, err := Open(t.Context(), url); driver.ClassOf(err) != driver.Unavailable {
		t.Errorf("without a majority: %v", err)
	}
	b.Password = "secret"
	b.Restart(t)
	if _, err := Open(t.Context(), url); driver.ClassOf(err) != driver.Refused || strings.Contains(err.Error(), "secret") {
		t.Errorf("a node that refuses: %v", err)
	}
}

// TestRedlockRestartGuardIsOn: servers that have just started may have lost their
// data, so nothing is granted for one TTL.
func TestRedlockRestartGuardIsOn(t *testing.T) {
	var hosts []string
	for range 3 {
		hosts = append(hosts, servers.Redis(t, servers.RedisOptions{}).Addr())
	}
	started := time.Now()
	const ttl = 10 * time.Second // longer than the start of all servers takes
	locks := mustOpen(t, "redlock://"+strings.Join(hosts, ","), holdfast.WithTTL(ttl))
	refused := false
	for {
		h, err := locks.Mutex("m").TryLock(t.Context())
		if err == nil {
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
			break
		}
		if errors.Is(err, holdfast.ErrHeld) || time.Since(started) > time.Minute {
			t.Fatal(err)
		}
		refused = true
		time.Sleep(20 * time.Millisecond)
	}
	if !refused {
		t.Error("granted at once")
	}
}
