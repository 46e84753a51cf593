package lockserver

import (
	"net/http"
)

var breakParams = map[string]paramType{"name": isText, "ticket": isText, "owner": isText}

// serveBreak answers POST /v1/break: one ticket, or all tickets of an owner, leave. To
// break one of two tickets of an owner would free nothing.
func (s *Server) serveBreak(c *call) {
	p, bad := readParams(c.w, c.r, breakParams)
	if bad == nil {
		bad = s.checkName(p.text("name"))
	}
	if bad == nil && (p.text("ticket") == "") == (p.text("owner") == "") {
		bad = badRequest("a ticket or an owner has to be named, not both")
	}
	if bad == nil {
		bad = c.may(RightBreak, p.text("name"))
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	name, ticket, owner := p.text("name"), p.text("ticket"), p.text("owner")
	if f := s.options.Events.Break; f != nil {
		if f(BreakInfo{Name: name, Principal: c.who.Name, Remote: c.remote, Ticket: ticket, Owner: owner}) != nil {
			c.fail(newProblem(http.StatusInternalServerError, "internal", "the break cannot be recorded, and was not carried out"))
			return
		}
	}
	ctx, cancel := requestContext(c.r.Context(), ioTimeout)
	defer cancel()
	broken := 1
	var err error
	if owner != "" {
		broken, err = s.store.breakOwner(ctx, name, owner, "")
	} else {
		err = s.store.Break(ctx, name, ticket)
	}
	switch {
	case err != nil:
		c.fail(problemOf(err))
	case broken == 0:
		c.fail(newProblem(http.StatusNotFound, "no_ticket", "the owner has no ticket in the queue"))
	default:
		_ = c.answer(http.StatusOK, fields{{"broken", broken}})
	}
}
