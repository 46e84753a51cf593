package anylock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
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
		"redlock:a,b,c":                         "not of the form",
		"redlock://u:secret@a":                  "names 1 hosts",
		"redlock://u:secret@a,b":                "names 2 hosts",
		"redlock://u:secret@a,b,c,d":            "names 4 hosts",
		"redlock://u:secret@a,b,":               "empty host",
		"redlock://u:secret@a,b,a":              "twice",
		"redlock://u:secret@a,b,c:x":            "cannot be parsed",
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

// A majority opens the lock; a server that comes later takes part, and one that
// is named twice is noticed.
func TestRedlock(t *testing.T) {
	a, b, c := backends.Redis(t, backends.RedisOptions{}), backends.Redis(t, backends.RedisOptions{}), backends.Redis(t, backends.RedisOptions{})
	c.Crash(t)
	hosts := a.Addr() + "," + b.Addr() + "," + c.Addr()
	url := "redlock://" + hosts + "?restart_guard=off"
	exclude(t, mustOpen(t, url), mustOpen(t, url), true)

	d, err := Driver(t.Context(), url)
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

// Servers that have just started may have lost their data: nothing is granted
// until a TTL has passed.
func TestRedlockGuards(t *testing.T) {
	var hosts []string
	for range 3 {
		hosts = append(hosts, backends.Redis(t, backends.RedisOptions{}).Addr())
	}
	started := time.Now()
	const ttl = 2 * time.Second
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
