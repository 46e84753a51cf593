package lockserver

import (
	"net/http"

	"github.com/holdfast-go/holdfast"
)

const (
	maxPage     = 1000 // names in one answer
	defaultPage = 100
	parallel    = 16 // Inspects of one request at a time
)

var (
	lockParams  = map[string]paramType{"name": isText}
	locksParams = map[string]paramType{"prefix": isText, "after": isText, "limit": isNumber}
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
	info, err := s.store.Inspect(ctx, p.text("name"))
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
	names, err := s.store.page(ctx, &c.who, p.text("prefix"), p.text("after"), limit+1)
	if err != nil {
		c.fail(problemOf(err))
		return
	}
	more := len(names) > limit
	names = names[:min(len(names), limit)]
	infos, err := s.store.inspectAll(ctx, names)
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
