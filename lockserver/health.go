package lockserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// serveHealth answers GET /healthz: the process answers.
func (s *Server) serveHealth(c *call) { _ = c.answer(http.StatusOK, fields{{"status", "ok"}}) }

// serveReady answers GET /readyz: the server takes new holds, and the store answers.
func (s *Server) serveReady(c *call) {
	if s.table.isEnding() {
		c.fail(draining())
		return
	}
	if err := s.ping.try(c.r.Context(), s.store.Client); err != nil {
		c.fail(problemOf(err))
		return
	}
	_ = c.answer(http.StatusOK, fields{{"status", "ready"}})
}

// pinger asks the store whether it answers, once for all probes of a moment.
type pinger struct {
	mu   sync.Mutex
	last time.Time
	err  error
}

// pingEvery is the time for which one answer of the store serves.
const pingEvery = 2 * time.Second

func (p *pinger) try(ctx context.Context, client *holdfast.Client) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() && time.Since(p.last) < pingEvery {
		return p.err
	}
	ctx, cancel := requestContext(context.WithoutCancel(ctx), pingEvery)
	defer cancel()
	p.err = client.Ping(ctx)
	p.last = time.Now()
	return p.err
}
