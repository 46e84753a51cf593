//go:build unix

package cli

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF136_RunEndsOnASilentStore: a run that waits behind a holder, and one that holds, end
// after TERM within the documented third of the TTL, whatever the store.
func TestF136_RunEndsOnASilentStore(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T) (url string, pause func() (resume func())){
		"postgres": func(t *testing.T) (string, func() func()) {
			s := servers.Postgres(t, servers.PostgresOptions{})
			return s.URL("postgres", "sslmode=disable"), func() func() { return s.Pause(t) }
		},
		"redis": func(t *testing.T) (string, func() func()) {
			s := servers.Redis(t, servers.RedisOptions{})
			return s.URL(""), func() func() {
				s.Pause(t)
				return func() { s.Resume(t) }
			}
		},
		"lock server": func(t *testing.T) (string, func() func()) {
			d := serve(t, "--store", sqlite(t))
			return "holdfast://" + strings.TrimPrefix(d.url, "http://"), func() func() {
				d.signal(syscall.SIGSTOP)
				return func() { d.signal(syscall.SIGCONT) }
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, pause := begin(t)
			const ttl = 6 * time.Second
			flags := "--ttl " + ttl.String() + " a"
			holds := start(t, sh(url, flags, "echo in; exec sleep 600")...).says("out", "in")
			waits := start(t, sh(url, flags, "true")...).says("err", "waiting for a")
			defer pause()()
			for what, p := range map[string]*process{"holds": holds, "waits": waits} {
				began := time.Now()
				p.signal(syscall.SIGTERM)
				p.end()
				if took := time.Since(began); took > ttl/3+3*time.Second {
					t.Errorf("the run that %s ended %v after TERM, want %v at most", what, took, ttl/3)
				} else {
					t.Logf("the run that %s ended %v after TERM", what, took)
				}
			}
		})
	}
}
