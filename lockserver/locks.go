package lockserver

import (
	"container/heap"
	"context"
	"net/http"
	"sync"

	"github.com/holdfast-go/holdfast"
)

const (
	maxPage     = 1000 // names in one answer
	defaultPage = 100
	parallel    = 16 // Inspects of one request at a time
)

var (
	lockParams  = map[string]paramType{"name": text}
	locksParams = map[string]paramType{"prefix": text, "after": text, "limit": number}
)

// serveLock answers GET /v1/lock: the holders of a name, then its waiters in order.
func (s *Server) serveLock(c *call) {
	p, bad := parseForm(c.r.URL.RawQuery, lockParams)
	if bad == nil {
		bad = s.checkName(p.text("name"))
	}
	if bad == nil {
		bad = c.may(RightRead, p.text("name"))
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	ctx, cancel := requestContext(c.r.Context(), ioTimeout)
	defer cancel()
	info, err := s.client.Inspect(ctx, p.text("name"))
	if err != nil {
		c.fail(problemOf(err))
		return
	}
	_ = c.answer(http.StatusOK, lockFields(info, true))
}

// lockFields returns a lock as answers have it; with times, what is left of leases too.
func lockFields(info holdfast.LockInfo, times bool) fields {
	f := fields{{"name", info.Name}, {"kind", info.Kind()}}
	if info.Token != 0 {
		f = f.with("token", info.Token)
	}
	return f.with("holders", ticketFields(info.Holders, times)).with("waiters", ticketFields(info.Waiters, times))
}

func ticketFields(tickets []holdfast.TicketInfo, times bool) []fields {
	out := make([]fields, 0, len(tickets))
	for _, t := range tickets {
		f := fields{{"ticket", t.ID}, {"units", t.Units}}
		if t.Holder.Owner != "" {
			f = f.with("owner", t.Holder.Owner)
		}
		if t.Token != 0 {
			f = f.with("token", t.Token)
		}
		if times {
			f = f.with("left_ms", t.Left.Milliseconds())
		}
		out = append(out, f.with("holder", holderOf(t.Holder)))
	}
	return out
}

// serveLocks answers GET /v1/locks: a page of names in use, with counts.
func (s *Server) serveLocks(c *call) {
	p, bad := parseForm(c.r.URL.RawQuery, locksParams)
	limit := defaultPage
	if bad == nil && p.has("limit") {
		limit = int(min(max(p.number("limit"), 0), maxPage+1))
		if limit < 1 || limit > maxPage {
			bad = badRequest("limit: 1 to %d are possible", maxPage)
		}
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	ctx, cancel := requestContext(c.r.Context(), maxWait)
	defer cancel()
	names, err := s.page(ctx, &c.who, p.text("prefix"), p.text("after"), limit+1)
	if err != nil {
		c.fail(problemOf(err))
		return
	}
	more := len(names) > limit
	names = names[:min(len(names), limit)]
	infos, err := s.inspectAll(ctx, names)
	if err != nil {
		c.fail(problemOf(err))
		return
	}
	list := make([]fields, len(infos))
	for i, info := range infos {
		list[i] = fields{{"name", info.Name}, {"kind", info.Kind()}, {"holders", len(info.Holders)}, {"waiters", len(info.Waiters)}}
	}
	f := fields{{"locks", list}}
	if more {
		f = f.with("next", names[len(names)-1])
	}
	_ = c.answer(http.StatusOK, f)
}

// page returns the first names in use after a name, in order, that who may read.
func (s *Server) page(ctx context.Context, who *Principal, prefix, after string, limit int) ([]string, error) {
	var last maxHeap
	for name, err := range s.client.Names(ctx, prefix) {
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

// inspectAll returns the queues of names, in their order, a few at a time.
func (s *Server) inspectAll(ctx context.Context, names []string) ([]holdfast.LockInfo, error) {
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
			info, err := s.client.Inspect(ctx, name)
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
