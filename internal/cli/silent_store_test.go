//go:build unix

package cli

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// openLimit is the longest of the stores' own limits for an answer when they
// are opened.
const openLimit = 10 * time.Second

// silent returns the address of a server that accepts connections and says
// nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		var conns []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

// silentURLs are the URLs of every store with a server, at one address.
func silentURLs(addr string) []string {
	return []string{
		"redis://" + addr, "redis-sentinel://" + addr + "/m", "redis-cluster://" + addr,
		"redlock://" + addr + ",127.0.0.1:1,127.0.0.1:2", // nobody listens at the other two
		"etcd://" + addr, "zk://" + addr, "postgres://" + addr + "/db?sslmode=disable", "mysql://" + addr + "/db",
	}
}

// TestF123_SilentStoreAtOpenEndsInTime: a server that accepts and says nothing holds
// no verb up, --wait and --no-wait bound the opening of the store, and the
// address is named.
func TestF123_SilentStoreAtOpenEndsInTime(t *testing.T) {
	t.Parallel()
	addr := silent(t)
	for _, url := range silentURLs(addr) {
		scheme, _, _ := strings.Cut(url, ":")
		for line, limit := range map[string]time.Duration{
			"run --wait 300ms": 300 * time.Millisecond,
			"run --no-wait":    noWaitLimit,
			"ls":               openLimit,
			"doctor":           openLimit,
		} {
			t.Run(scheme+" "+line, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				args := append([]string{"--store", url}, strings.Fields(line)...)
				if strings.HasPrefix(line, "run") {
					args = append(args, "a", "--", "true")
				}
				start(t, args...).end().want(t, exitUnavailable, "", addr)
				if took := time.Since(began); took > limit+10*time.Second {
					t.Errorf("it took %v, want %v at most", took, limit)
				}
			})
		}
	}
}
