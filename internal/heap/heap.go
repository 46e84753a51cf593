// Package heap keeps elements in a binary heap in which every element knows its
// own index, so that one can be moved or removed without a search.
package heap

// Order compares the elements of a heap and says where they keep their index. Its
// zero value is used, so it is best a struct without fields.
type Order[E any] interface {
	// Before reports whether a comes before b.
	Before(a, b E) bool
	// Index returns the place where e keeps its index plus 1. The heap writes it;
	// 0 means that e is not in the heap.
	Index(e E) *int32
}

// Heap is a heap of elements; the first one is at index 0. Its zero value is
// empty. It has no lock of its own.
type Heap[E any, O Order[E]] []E

// Set adds e, or restores its position after a change of e.
func (h *Heap[E, O]) Set(e E) {
	var order O
	i := int(*order.Index(e)) - 1
	if i < 0 {
		i = len(*h)
		*h = append(*h, e)
	}
	h.move(i, e)
}

// Remove removes e. An element that is not in the heap is ignored.
func (h *Heap[E, O]) Remove(e E) {
	var order O
	i := int(*order.Index(e)) - 1
	if i < 0 {
		return
	}
	var none E
	last := len(*h) - 1
	moved := (*h)[last]
	(*h)[last] = none
	*h = (*h)[:last]
	if i != last {
		h.move(i, moved)
	}
	*order.Index(e) = 0
}

// move puts e at index i, whose element is not needed there any more, and from
// there to where it belongs.
func (h *Heap[E, O]) move(i int, e E) {
	if down := h.sink(i, e); down != i {
		return
	}
	h.rise(i, e)
}

// sink moves elements that come before e up, from below i, puts e below them,
// and returns its index.
func (h *Heap[E, O]) sink(i int, e E) int {
	var order O
	s := *h
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if right := child + 1; right < len(s) && order.Before(s[right], s[child]) {
			child = right
		}
		if !order.Before(s[child], e) {
			break
		}
		h.put(i, s[child])
		i = child
	}
	h.put(i, e)
	return i
}

// rise moves elements that come after e down, from above i, and puts e above
// them.
func (h *Heap[E, O]) rise(i int, e E) {
	var order O
	for i > 0 {
		parent := (i - 1) / 2
		if !order.Before(e, (*h)[parent]) {
			break
		}
		h.put(i, (*h)[parent])
		i = parent
	}
	h.put(i, e)
}

func (h *Heap[E, O]) put(i int, e E) {
	var order O
	(*h)[i] = e
	*order.Index(e) = int32(i + 1)
}
