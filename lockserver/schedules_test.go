package lockserver

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The test runs that many schedules; a build of its own may run more of them.
var (
	schedules = flag.Int("schedules", 40, "how many random schedules TestRandomSchedulesExclude runs")
	firstSeed = flag.Uint64("schedules.seed", 1, "the seed of the first schedule")
)

// believer is a client that counts as docs/serve.md says.
type believer struct {
	w       *world
	g       *ground
	rnd     *rand.Rand
	servers []*Server
	at      int
	tries   int
	number  int
	until   time.Time // it believes until then
	token   uint64
	moved   bool
}

// ground stands for the resource that clients write to: it sees two that believe at once.
type ground struct {
	mu      sync.Mutex
	by      *believer
	until   time.Time
	last    uint64 // greatest token that was believed
	grants  int
	resumes int
}

// believe notes that b believes with a token until an instant.
func (g *ground) believe(b *believer, token uint64, until time.Time, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.by != b && g.by != nil && now.Before(g.until) {
		b.w.Errorf("client %d believes at %v, client %d until %v", b.number, now, g.by.number, g.until)
	}
	switch {
	case fresh && token <= g.last:
		b.w.Errorf("client %d: token %d after %d", b.number, token, g.last)
	case !fresh && token != b.token:
		b.w.Errorf("client %d: token %d became %d", b.number, b.token, token)
	case fresh:
		g.grants++
	}
	g.by, g.until, g.last = b, until, max(g.last, token)
}

// disbelieve notes that b's belief has ended.
func (g *ground) disbelieve(b *believer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == b {
		g.by, g.until = nil, time.Time{}
	}
}

func (b *believer) id() string { return fmt.Sprintf("client-%09d.%d", b.number, b.tries) }

// ask sends a request whose answer may be late or lost, to a server that may be another
// than before. ok is false for a lost answer.
func (b *believer) ask(path string, fields ...string) (r reply, c0 time.Time, ok bool) {
	if b.rnd.IntN(6) == 0 {
		b.at = b.rnd.IntN(len(b.servers))
		b.moved = true
	}
	c0 = time.Now()
	if b.rnd.IntN(8) == 0 {
		time.Sleep(rand.N(2 * time.Second)) // on its way
	}
	r = b.w.post(b.servers[b.at], path, fields...)
	if b.rnd.IntN(20) == 0 {
		b.w.post(b.servers[b.at], path, fields...) // doubled by a proxy
	}
	if b.rnd.IntN(8) == 0 {
		time.Sleep(rand.N(12 * time.Second)) // late
	}
	if b.rnd.IntN(10) == 0 {
		b.moved = true
		return r, c0, false
	}
	return r, c0, true
}

// confirm counts an answer as the rules say. It reports whether the client believes.
func (b *believer) confirm(r reply, c0 time.Time, fresh bool) bool {
	left := time.Duration(r.number("left_ms")) * time.Millisecond
	until := c0.Add(left - left/100 - min(left/100, 20*time.Millisecond))
	now := time.Now()
	if !now.Before(until) || !fresh && !now.Before(b.until) {
		return false
	}
	b.g.believe(b, uint64(r.number("token")), until, fresh)
	if until.After(b.until) {
		b.until = until
	}
	b.token = uint64(r.number("token"))
	return true
}

// try takes the lock once, works under it, and ends in one of several ways.
func (b *believer) try() {
	b.tries++
	b.until, b.token, b.moved = time.Time{}, 0, false
	for n := 0; ; n++ {
		r, c0, ok := b.ask("/v1/acquire", "id", b.id(), "name", "a", "ttl_ms", "9000", "wait_ms", strconv.Itoa(b.rnd.IntN(5000)))
		if ok && r.text("state") == "held" && b.confirm(r, c0, true) {
			break
		}
		if ok && r.text("state") == "held" || ok && r.status == 410 || n > 8 || b.rnd.IntN(15) == 0 {
			b.release()
			return
		}
	}
	for range b.rnd.IntN(6) {
		time.Sleep(rand.N(4 * time.Second))
		was := b.at
		var r reply
		var c0 time.Time
		var ok bool
		if b.at == was && b.rnd.IntN(4) > 0 {
			r, c0, ok = b.ask("/v1/renew", "id", b.id())
			r = r.entry(0)
		} else {
			r, c0, ok = b.ask("/v1/acquire", "id", b.id(), "name", "a", "ttl_ms", "9000", "resume", strconv.FormatUint(b.token, 10))
			b.g.mu.Lock()
			b.g.resumes++
			b.g.mu.Unlock()
		}
		if !time.Now().Before(b.until) {
			break // lost, and final
		}
		if ok && r.text("state") == "held" {
			b.confirm(r, c0, false)
		} else if ok && r.text("code") == "lost" {
			break
		}
	}
	b.g.disbelieve(b)
	if b.rnd.IntN(5) > 0 { // else it dies, and its lease runs out
		b.release()
	}
}

// release gives up whatever the id has.
func (b *believer) release() {
	for range 3 {
		fields := []string{"id", b.id(), "name", "a"}
		if b.moved {
			fields = append(fields, "moved", "true")
		}
		if r, _, ok := b.ask("/v1/release", fields...); ok && r.entry(0).text("result") != resultUnknown {
			return
		}
	}
}

// TestRandomSchedulesExclude runs clients that move between servers, die, and lose,
// delay and double requests and answers: no two believe at once, tokens of grants grow, a
// resumed hold keeps its token, and nothing is left in the end.
func TestRandomSchedulesExclude(t *testing.T) {
	grants, resumes := 0, 0
	for i := range *schedules {
		seed := *firstSeed + uint64(i)
		bubble(t, func(w *world) {
			g := new(ground)
			servers := []*Server{w.server(), w.server()}
			var group sync.WaitGroup
			for n := range 4 {
				b := &believer{w: w, g: g, rnd: rand.New(rand.NewPCG(seed, uint64(n))), servers: servers, number: n}
				group.Go(func() {
					for range 5 {
						b.try()
						time.Sleep(rand.N(time.Second))
					}
				})
			}
			group.Wait()
			time.Sleep(time.Minute) // for the leases of the dead
			if h, n := w.tickets(w.client(), "a"); h+n > 0 {
				t.Errorf("seed %d: %d holders and %d waiters are left", seed, h, n)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
			grants, resumes = grants+g.grants, resumes+g.resumes
		})
	}
	t.Logf("%d grants, %d resumes", grants, resumes)
	if grants < *schedules || resumes == 0 {
		t.Errorf("%d grants and %d resumes in %d schedules", grants, resumes, *schedules)
	}
}
