package servers

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// redisThatEvicts is a server with a cache beside the locks, and sometimes
// without memory for both: it drops keys as its policy says (F33).
func redisThatEvicts(t *testing.T, policy string) deployment {
	s := servers.Redis(t, servers.RedisOptions{Args: []string{"--maxmemory-policy", policy}})
	var dropped atomic.Int64 // of all keys, mostly the cache's
	return deployment{url: s.URL(""), counts: map[string]*atomic.Int64{"keys evicted": &dropped}, own: []torture.Fault{{
		Kind: "memory full", Weight: 30, Begin: func(int) (func() error, error) {
			before, used := number(t, s, "stats", "evicted_keys"), number(t, s, "memory", "used_memory")
			if _, err := s.Try("CONFIG", "SET", "maxmemory", fmt.Sprint(used+cacheRoom)); err != nil {
				return nil, err
			}
			stop := make(chan struct{})
			var load sync.WaitGroup
			load.Go(func() { fill(s, stop) })
			return func() error {
				close(stop)
				load.Wait()
				dropped.Add(number(t, s, "stats", "evicted_keys") - before)
				_, err := s.Try("CONFIG", "SET", "maxmemory", "0")
				return err
			}, nil
		},
	}}}
}

const (
	cacheRoom = 2 << 20 // bytes
	cacheKeys = 4000    // more than fit
	cacheSize = 8 << 10 // bytes of each
)

// fill writes to a cache, round and round. It ignores the refusal of a write by
// a server without memory.
func fill(s *servers.RedisServer, stop <-chan struct{}) {
	value := strings.Repeat("x", cacheSize)
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for i := 0; ; i++ {
		_, _ = s.Try("SET", "cache:"+strconv.Itoa(i%cacheKeys), value, "EX", "600")
		select {
		case <-stop:
			return
		case <-pace.C:
		}
	}
}

func number(t *testing.T, s *servers.RedisServer, section, name string) int64 {
	n, err := strconv.ParseInt(s.Info(t, section, name), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
