package redlock

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/redislock"
)

// A race has three servers, a client on each of them alone, and one client on
// the majority. The clients reach a server by the same way.
type race struct {
	ss     redisServers
	ways   []*faultproxy.Proxy
	single []*holdfast.Client
	all    *holdfast.Client
	names  int
}

func newRace(t testing.TB, ways ...time.Duration) *race {
	t.Helper()
	r := &race{ss: start(t, 3)}
	var nodes []driver.Driver
	for i, s := range r.ss {
		url := s.URL("")
		if len(ways) > 0 {
			r.ways = append(r.ways, faultproxy.Between(t, s.Addr()))
			r.ways[i].Delay(ways[i])
			url = "redis://" + r.ways[i].Addr() + "/0"
		}
		for _, use := range []func(d driver.Driver){
			func(d driver.Driver) { r.single = append(r.single, racer(t, d)) },
			func(d driver.Driver) { nodes = append(nodes, d) },
		} {
			d, err := openNode(url)
			if err != nil {
				t.Fatal(err)
			}
			use(d)
		}
	}
	d, err := New(nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.all = racer(t, d)
	return r
}

func racer(t testing.TB, d driver.Driver) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// apart makes two nodes disagree about a name's next token: one has given
// tokens that are an hour ahead of its clock.
func (r *race) apart(t testing.TB, name string) {
	since := time.Since(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
	r.ss[1].Do(t, "ZADD", "holdfast_ahead", strconv.FormatInt(int64((since+time.Hour)/driver.TokenTick), 10), redislock.DefaultPrefix+name)
}

// times are the durations of pairs of Lock and Unlock.
type times []time.Duration

func (ts times) median() time.Duration {
	s := slices.Clone(ts)
	slices.Sort(s)
	return s[len(s)/2]
}

// run takes and releases a lock n times: at each of these nodes alone and by
// the majority, in turns, so that a busy moment affects all of them alike. It
// returns the times of the slowest node, and those of the majority.
func (r *race) run(t testing.TB, n int, nodes []int, before func(name string)) (single, all times) {
	t.Helper()
	alone := make([]times, len(r.single))
	lock := func(c *holdfast.Client, name string) time.Duration {
		begun := time.Now()
		h, err := c.Mutex(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(); err != nil {
			t.Fatal(err)
		}
		return time.Since(begun)
	}
	for range n {
		r.names++
		name := fmt.Sprint("n", r.names)
		for _, i := range nodes {
			alone[i] = append(alone[i], lock(r.single[i], "alone"))
		}
		if before != nil {
			before(name)
		}
		all = append(all, lock(r.all, name))
	}
	for _, i := range nodes {
		if single == nil || alone[i].median() > single.median() {
			single = alone[i]
		}
	}
	return single, all
}

// TestLockTakesTwoRounds checks the cost of a lock where most of the time is
// spent on the way to the nodes. The cost is its rounds: one to lock and one to
// unlock, as at the slowest node alone, one more where the tokens have to be
// made alike, and none for a node that hangs. The test compares the least of
// several times, to which a busy machine has added the least.
func TestLockTakesTwoRounds(t *testing.T) {
	r := newRace(t, 8*time.Millisecond, 9*time.Millisecond, 10*time.Millisecond)
	const n = 11
	slowest := []int{2}
	check := func(what string, single, all times, most float64) {
		t.Helper()
		ratio := float64(slices.Min(all)) / float64(slices.Min(single))
		t.Logf("%s: %v, the slowest node alone %v: %.2f", what, slices.Min(all), slices.Min(single), ratio)
		if ratio > most {
			t.Errorf("%s, a lock takes %.2f times what it does at the slowest node, want %.1f", what, ratio, most)
		}
	}
	single, up := r.run(t, n, slowest, nil)
	check("all nodes answer", single, up, 1.3)

	r.ways[0].Split(true)
	defer r.ways[0].Heal()
	r.run(t, 3, nil, nil) // the first locks find out that the node hangs
	single, hung := r.run(t, n, slowest, nil)
	check("one hangs, and the others agree", single, hung, 1.3)
	if float64(slices.Min(hung)) > 1.15*float64(slices.Min(up)) {
		t.Errorf("a node that hangs makes it %v, from %v", slices.Min(hung), slices.Min(up))
	}
	single, apart := r.run(t, n, slowest, func(name string) { r.apart(t, name) })
	check("one hangs, and the others do not agree", single, apart, 1.75) // three rounds, not four, against two
	if slices.Min(apart) < slices.Min(single)*5/4 {
		t.Error("nothing had to be made alike")
	}
}

// BenchmarkLock compares a majority of three with the slowest of its nodes.
func BenchmarkLock(b *testing.B) {
	for what, ways := range map[string][]time.Duration{
		"loopback": nil,
		"link":     {3 * time.Millisecond, 4 * time.Millisecond, 5 * time.Millisecond},
	} {
		for _, how := range []string{"all", "one stopped", "apart"} {
			b.Run(what+"/"+how, func(b *testing.B) {
				r := newRace(b, ways...)
				nodes := []int{0, 1, 2}
				if how != "all" {
					nodes = nodes[1:]
					r.ss[0].Pause(b)
					defer r.ss[0].Resume(b)
					r.run(b, 3, nil, nil) // the first locks find out the state of the nodes
				}
				var before func(string)
				if how == "apart" {
					before = func(name string) { r.apart(b, name) }
				}
				for b.Loop() {
					b.StopTimer()
					alone, majority := r.run(b, 500, nodes, before)
					single, all := alone.median(), majority.median()
					b.StartTimer()
					b.ReportMetric(float64(single.Microseconds())/1000, "single-ms")
					b.ReportMetric(float64(all.Microseconds())/1000, "majority-ms")
					b.ReportMetric(float64(all)/float64(single), "ratio")
				}
			})
		}
	}
}
