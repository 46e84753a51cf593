package bench

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/checker"
)

// record is one acquisition. Times are nanoseconds of the clock that processes
// share; granted 0 means that it was still waiting at the end.
type record struct {
	asked, granted, released, done int64
	goroutine                      int64 // the goroutine, counted over all clients
	client                         int64
}

const recordSize = 6 * 8

// now reads the clock that processes share, but costs no system call: it goes on
// from one look at it.
func now() int64 { return epoch + int64(time.Since(began)) }

var began, epoch = syncClocks()

// syncClocks looks at both clocks at one instant, as nearly as it can: what lies
// between the two looks is an error of every time that this process tells, and
// the processor may be taken away there. So the shortest of several counts.
func syncClocks() (began time.Time, epoch int64) {
	least := time.Duration(math.MaxInt64)
	for range 32 {
		before := time.Now()
		shared := checker.Now()
		if took := time.Since(before); took < least {
			least, began, epoch = took, before.Add(took/2), shared
		}
	}
	return began, epoch
}

func writeRecords(w io.Writer, rs []record) error {
	buf := make([]byte, 0, 1024*recordSize)
	for len(rs) > 0 {
		n := min(len(rs), 1024)
		buf = buf[:0]
		for _, r := range rs[:n] {
			for _, v := range [...]int64{r.asked, r.granted, r.released, r.done, r.goroutine, r.client} {
				buf = binary.LittleEndian.AppendUint64(buf, uint64(v))
			}
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		rs = rs[n:]
	}
	return nil
}

func readRecords(r io.Reader, rs []record, n int) ([]record, error) {
	var buf [recordSize]byte
	for range n {
		if _, err := io.ReadFull(r, buf[:]); err != nil {
			return rs, err
		}
		at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(buf[8*i:])) }
		rs = append(rs, record{at(0), at(1), at(2), at(3), at(4), at(5)})
	}
	return rs, nil
}

// overlap looks for two that held at once. A record begins after its Lock has
// returned and ends before its Unlock was called, so that what is found is
// true, whatever the machine did in between.
func overlap(sorted []record) error {
	for i := 1; i < len(sorted); i++ {
		a, b := sorted[i-1], sorted[i]
		if b.granted < a.released {
			return fmt.Errorf("bench: %w: goroutine %d held for %v when goroutine %d got it, and for %v on", ErrOverlap,
				a.goroutine, time.Duration(b.granted-a.granted), b.goroutine, time.Duration(a.released-b.granted))
		}
	}
	return nil
}

// Figures are the results of one run, by name; see [Columns].
type Figures map[string]float64

// figuresOf makes figures of the records of one run in a window of time.
func figuresOf(s Scenario, rs []record, start, end int64) (Figures, error) {
	slices.SortFunc(rs, func(a, b record) int { return cmp.Compare(a.granted, b.granted) })
	first := 0
	for first < len(rs) && rs[first].granted == 0 {
		first++
	}
	unserved, held := rs[:first], rs[first:]
	if s.Shared {
		if err := overlap(held); err != nil {
			return nil, err
		}
	}
	f := Figures{}
	var lock, unlock, cycle, hand []int64
	counts := make([]float64, s.Clients*s.Goroutines)
	var waits, longest float64
	for i, r := range held {
		if r.granted > end {
			longest = max(longest, float64(end-r.asked))
			continue
		}
		counts[r.goroutine]++
		lock = append(lock, r.granted-r.asked)
		unlock = append(unlock, r.done-r.released)
		cycle = append(cycle, r.granted-r.asked+r.done-r.released)
		waits += float64(r.granted - r.asked)
		longest = max(longest, float64(r.granted-r.asked))
		if i > 0 && s.Shared {
			if last := held[i-1]; r.asked < last.released && last.goroutine != r.goroutine {
				hand = append(hand, r.granted-last.released)
			}
		}
	}
	for _, r := range unserved {
		longest = max(longest, float64(end-r.asked))
	}
	n := float64(len(lock))
	f["acquisitions"] = n
	f["per_s"] = n / (float64(end-start) / 1e9)
	if n == 0 {
		return f, nil
	}
	quantiles(f, "lock", lock)
	quantiles(f, "unlock", unlock)
	quantiles(f, "cycle", cycle)
	if s.Shared {
		quantiles(f, "handoff", hand)
		f["jain"] = jain(counts)
		f["wait_max_over_mean"] = longest / (waits / n)
		f["wait_max_ms"] = longest / 1e6
		if s.Clients > 1 && s.Goroutines > 1 {
			streaks(f, held, end)
		}
	}
	return f, nil
}

// streaks says for how many grants, and for how long, one client had the lock
// while others waited.
func streaks(f Figures, held []record, end int64) {
	run, since := 0.0, int64(0)
	for i, r := range held {
		if r.granted > end {
			break
		}
		if i == 0 || held[i-1].client != r.client {
			run, since = 0, r.granted
		}
		run++
		f["turn_max_grants"] = max(f["turn_max_grants"], run)
		f["turn_max_ms"] = max(f["turn_max_ms"], float64(r.released-since)/1e6)
	}
}

// quantiles sets the median, the 99th percentile and the maximum of times in
// microseconds.
func quantiles(f Figures, what string, ns []int64) {
	if len(ns) == 0 {
		return
	}
	slices.Sort(ns)
	at := func(q float64) float64 { return float64(ns[int(q*float64(len(ns)-1))]) / 1e3 }
	f[what+"_p50_us"], f[what+"_p99_us"], f[what+"_max_us"] = at(0.5), at(0.99), at(1)
}

// jain is Jain's index of fairness: 1 when all got the same, 1/n when one got
// all.
func jain(counts []float64) float64 {
	var sum, squares float64
	for _, c := range counts {
		sum += c
		squares += c * c
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// Spread is a figure over several runs.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf summarises runs by figure.
func SpreadOf(runs []Figures) map[string]Spread {
	byName := map[string][]float64{}
	for _, f := range runs {
		for name, v := range f {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				byName[name] = append(byName[name], v)
			}
		}
	}
	all := make(map[string]Spread, len(byName))
	for name, v := range byName {
		slices.Sort(v)
		m := v[len(v)/2]
		if len(v)%2 == 0 {
			m = (m + v[len(v)/2-1]) / 2
		}
		all[name] = Spread{m, v[0], v[len(v)-1]}
	}
	return all
}
