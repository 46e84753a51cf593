package holdfast

import (
	"container/heap"
	"time"
)

// suspendCheck is how often the clock is looked at while something is held:
// timers stand still while the machine is suspended, claims do not.
const suspendCheck = time.Second

// hold watches the end of the claim of a held ticket. One timer serves a
// client; it is not moved by renewals, but looks when it fires at what the
// claims have become.
func (k *keeper) hold(t *ticket) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.keep.gone {
		return
	}
	t.keep.waiting = false
	t.keep.end = instant(t.claim.Load())
	heap.Push(&k.ends, t)
	if t.keep.end < k.armed {
		k.arm()
	}
}

// arm sets the timer for the first end. The caller has keeper.mu.
func (k *keeper) arm() {
	k.armed = never
	if len(k.ends) == 0 || k.c.closed() {
		return
	}
	now := k.c.clock.now()
	d := min(max(0, k.ends[0].keep.end.sub(now)), suspendCheck)
	k.armed = now.add(d)
	if k.timer == nil {
		k.timer = time.AfterFunc(d, k.expire)
	} else {
		k.timer.Reset(d)
	}
}

// expire runs when the timer fires: it ends the holds whose claims are over.
func (k *keeper) expire() {
	now := k.c.clock.now()
	var over []*ticket
	k.mu.Lock()
	for len(k.ends) > 0 && k.ends[0].keep.end <= now {
		t := k.ends[0]
		if end := instant(t.claim.Load()); end > now { // renewed meanwhile
			t.keep.end = end
			heap.Fix(&k.ends, 0)
			continue
		}
		heap.Pop(&k.ends)
		over = append(over, t)
	}
	k.arm()
	k.mu.Unlock()
	for _, t := range over {
		t.line.lose(t, LossExpired)
	}
}

// The heaps. A place is kept plus 1, so that the zero value means none.

type dueHeap []*ticket

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].keep.due < h[j].keep.due }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].keep.at, h[j].keep.at = int32(i+1), int32(j+1)
}
func (h *dueHeap) Push(x any) {
	t := x.(*ticket)
	*h = append(*h, t)
	t.keep.at = int32(len(*h))
}
func (h *dueHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.keep.at = 0
	return t
}

type endHeap []*ticket

func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, j int) bool { return h[i].keep.end < h[j].keep.end }
func (h endHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].keep.endAt, h[j].keep.endAt = int32(i+1), int32(j+1)
}
func (h *endHeap) Push(x any) {
	t := x.(*ticket)
	*h = append(*h, t)
	t.keep.endAt = int32(len(*h))
}
func (h *endHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.keep.endAt = 0
	return t
}

type laneHeap []*lane

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].ready() < h[j].ready() }
func (h laneHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i+1, j+1
}
func (h *laneHeap) Push(x any) {
	ln := x.(*lane)
	*h = append(*h, ln)
	ln.at = len(*h)
}
func (h *laneHeap) Pop() any {
	old := *h
	ln := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	ln.at = 0
	return ln
}
