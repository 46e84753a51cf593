package heap_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/heap"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type job struct {
	name  string
	due   int
	index int32
}

type byDue struct{}

func (byDue) Before(a, b *job) bool { return a.due < b.due }
func (byDue) Index(j *job) *int32   { return &j.index }

// Example moves a job to the front.
func Example() {
	var jobs heap.Heap[*job, byDue]
	late := &job{name: "late", due: 3}
	jobs.Set(late)
	jobs.Set(&job{name: "soon", due: 1})
	late.due = 0
	jobs.Set(late)
	for len(jobs) > 0 {
		fmt.Println(jobs[0].name)
		jobs.Remove(jobs[0])
	}
	// Output:
	// late
	// soon
}

// TestFirstIsAlwaysTheLeast compares a heap with a list after each of many
// changes from seeds.
func TestFirstIsAlwaysTheLeast(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var h heap.Heap[*job, byDue]
		var in []*job
		for range 400 {
			switch n := rng.IntN(10); {
			case n < 5 || len(in) == 0:
				j := &job{due: rng.IntN(40)}
				h.Set(j)
				in = append(in, j)
			case n < 7:
				j := in[rng.IntN(len(in))]
				j.due = rng.IntN(40)
				h.Set(j)
			default:
				i := rng.IntN(len(in))
				if n == 9 {
					i = slices.Index(in, h[0])
				}
				j := in[i]
				in = slices.Delete(in, i, i+1)
				h.Remove(j)
				if j.index != 0 {
					t.Fatalf("seed %d: index %d after Remove", seed, j.index)
				}
				h.Remove(j) // again, without effect
			}
			if len(h) != len(in) {
				t.Fatalf("seed %d: %d elements, want %d", seed, len(h), len(in))
			}
			for i, j := range h {
				if int(j.index) != i+1 {
					t.Fatalf("seed %d: index %d at %d", seed, j.index, i)
				}
				if i > 0 && j.due < h[(i-1)/2].due {
					t.Fatalf("seed %d: %d is below %d", seed, j.due, h[(i-1)/2].due)
				}
			}
		}
	}
}
