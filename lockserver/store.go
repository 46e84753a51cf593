package lockserver

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
)

// store is the client of the store, with the questions of a server that take more than
// one request. It has no state.
type store struct{ *holdfast.Client }

// lock takes a lock, or, with try, takes it only if it is free.
func (s *store) lock(ctx context.Context, sp *spec, opts []holdfast.Option, try bool) (*holdfast.Hold, error) {
	switch sp.kind {
	case kindRead, kindWrite:
		m := s.RWMutex(sp.name, opts...)
		switch {
		case sp.kind == kindRead && try:
			return m.TryRLock(ctx)
		case sp.kind == kindRead:
			return m.RLock(ctx)
		case try:
			return m.TryLock(ctx)
		}
		return m.Lock(ctx)
	case kindPermits:
		m := s.Semaphore(sp.name, int(sp.of), opts...)
		if try {
			return m.TryAcquire(ctx, int(sp.permits))
		}
		return m.Acquire(ctx, int(sp.permits))
	}
	m := s.Mutex(sp.name, opts...)
	if try {
		return m.TryLock(ctx)
	}
	return m.Lock(ctx)
}

// holdsWith reports whether an owner holds with a token. It gives up after a quarter of
// the TTL: the client is told so, and its next request asks again, when the store may be
// back.
func (s *store) holdsWith(ctx context.Context, sp *spec, owner string, token uint64) (bool, error) {
	ctx, cancel := requestContext(ctx, sp.ttl/4)
	defer cancel()
	info, err := s.Inspect(ctx, sp.name)
	return err == nil && slices.ContainsFunc(info.Holders, func(t holdfast.TicketInfo) bool {
		return t.Holder.Owner == owner && t.Token>>8 == token>>8
	}), err
}

// breakOwner removes the tickets of an owner, but for one, and returns their number.
func (s *store) breakOwner(ctx context.Context, name, owner, but string) (n int, err error) {
	info, err := s.Inspect(ctx, name)
	if err != nil {
		return 0, err
	}
	for _, list := range [][]holdfast.TicketInfo{info.Waiters, info.Holders} {
		for _, t := range list {
			if t.Holder.Owner != owner || t.ID == but {
				continue
			}
			switch err := s.Break(ctx, name, t.ID); {
			case err == nil:
				n++
			case !errors.Is(err, holdfast.ErrNoTicket):
				return n, err
			}
		}
	}
	return n, nil
}

// breakAll removes the tickets of an owner until a look at the queue finds none.
func (s *store) breakAll(ctx context.Context, name, owner string) error {
	for {
		if n, err := s.breakOwner(ctx, name, owner, ""); n == 0 || err != nil {
			return err
		}
	}
}

// page returns the first names in use after a name, in order, that who may read.
func (s *store) page(ctx context.Context, who *Principal, prefix, after string, limit int) ([]string, error) {
	var last maxHeap
	for name, err := range s.Names(ctx, prefix) {
		switch {
		case err != nil:
			return nil, err
		case name <= after || !who.may(RightRead, name):
		case len(last) < limit:
			heap.Push(&last, name)
		case name < last[0]:
			last[0] = name
			heap.Fix(&last, 0)
		}
	}
	names := make([]string, len(last))
	for i := len(names) - 1; i >= 0; i-- {
		names[i] = heap.Pop(&last).(string)
	}
	return names, nil
}

// allNames returns the names in use.
func (s *store) allNames(ctx context.Context) (seen map[string]bool, names []string, err error) {
	ctx, cancel := requestContext(ctx, maxWait)
	defer cancel()
	seen = make(map[string]bool)
	for name, err := range s.Names(ctx, "") {
		if err != nil {
			return nil, nil, err
		}
		seen[name] = true
		names = append(names, name)
	}
	return seen, names, nil
}

// inspectAll returns the queues of names, in their order, a few at a time.
func (s *store) inspectAll(ctx context.Context, names []string) ([]holdfast.LockInfo, error) {
	ctx, end := requestContext(ctx, maxWait)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	infos := make([]holdfast.LockInfo, len(names))
	slots := make(chan struct{}, parallel)
	var group sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			info, err := s.Inspect(ctx, name)
			if err != nil {
				cancel(err)
			}
			infos[i] = info
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return infos, nil
}

// maxHeap is a heap of names, the greatest first.
type maxHeap []string

func (h maxHeap) Len() int           { return len(h) }
func (h maxHeap) Less(i, j int) bool { return h[i] > h[j] }
func (h maxHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *maxHeap) Push(x any)        { *h = append(*h, x.(string)) }
func (h *maxHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
