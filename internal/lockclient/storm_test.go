package lockclient

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

var storms = flag.Int("storms", 60, "how many random schedules TestNoHoldIsLostBehindABalancer runs")

// atRandom is a balancer that brings each request to any of its servers.
type atRandom struct {
	mu      sync.Mutex
	rnd     *rand.Rand
	servers []http.Handler
}

func (b *atRandom) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	s := b.servers[b.rnd.IntN(len(b.servers))]
	b.mu.Unlock()
	s.ServeHTTP(w, r)
}

// TestNoHoldIsLostBehindABalancer lets clients of a balancer take turns, for as long as some
// TTLs, while the servers' ways to the store lose pushes and renewals for short times: no
// hold is lost, for the store has each.
func TestNoHoldIsLostBehindABalancer(t *testing.T) {
	for seed := range *storms {
		bubble(t, func(w *world) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 1))
			servers := w.startLossy()
			b := &atRandom{rnd: rand.New(rand.NewPCG(uint64(seed), 2))}
			for _, host := range w.hosts {
				b.servers = append(b.servers, servers[host].handler)
			}
			w.net.set("localhost:7420", b)
			hosts := w.hosts
			w.hosts = []string{"localhost:7420"}
			var all sync.WaitGroup
			for range 3 {
				c, mine := w.client(), rand.New(rand.NewPCG(rnd.Uint64(), 3))
				for range 2 {
					held := mine.Uint64()
					all.Go(func() {
						mine := rand.New(rand.NewPCG(held, 4))
						for range 4 {
							h, err := c.Mutex("n", holdfast.WithTTL(3*time.Second)).Lock(context.Background())
							if err != nil {
								t.Errorf("seed %d: %v", seed, err)
								return
							}
							time.Sleep(time.Duration(mine.Int64N(int64(5 * time.Second))))
							if err := h.Unlock(); err != nil {
								t.Errorf("seed %d: %v", seed, err)
							}
						}
					})
				}
			}
			done := make(chan struct{})
			go func() { all.Wait(); close(done) }()
			for over := false; !over; {
				s := servers[hosts[rnd.IntN(2)]].driver
				s.lost.Store(true)
				time.Sleep(time.Duration(rnd.Int64N(int64(500 * time.Millisecond))))
				s.lost.Store(false)
				select {
				case <-done:
					over = true
				case <-time.After(time.Duration(rnd.Int64N(int64(2 * time.Second)))):
				}
			}
		})
	}
}
