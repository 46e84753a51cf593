package lockserver

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver/internal/metrics"
)

// Metrics counts the requests and holds of one Server, and the locks of its client if
// that has Observer. GET /metrics answers with them, in the text format of Prometheus.
// No label has a name, an id, a principal or an address. It is safe for concurrent use;
// NewMetrics makes one.
type Metrics struct {
	server   atomic.Pointer[Server] // nil until New
	locks    *metrics.Locks
	observed atomic.Bool // Observer was asked for
	requests *metrics.Counters
	holds    *metrics.Counters
	denied   *metrics.Counters
	breaks   *metrics.Counters

	mu     sync.Mutex
	took   map[string]*metrics.Histogram // by endpoint
	extras []extraCounter
}

// extraCounter is a counter of the program around the server.
type extraCounter struct {
	name, help string
	value      func() uint64
}

// NewMetrics returns Metrics for the field Metrics of one server's Options.
func NewMetrics() *Metrics {
	return &Metrics{
		locks:    metrics.NewLocks(),
		requests: metrics.NewCounters("endpoint", "status", "code"),
		holds:    metrics.NewCounters("event", "reason"),
		denied:   metrics.NewCounters("code"),
		breaks:   metrics.NewCounters(),
		took:     make(map[string]*metrics.Histogram),
	}
}

// Observer returns an Observer for holdfast.WithObserver of the server's client. With
// it, the metrics of locks and of the store's errors are among the others, under the
// names that package promholdfast gives them.
func (m *Metrics) Observer() *holdfast.Observer {
	m.observed.Store(true)
	return m.locks.Observer()
}

// Counter adds a counter of the program around the server: its name, which ends in
// _total, a sentence about it, and a function that returns it, which may be called
// concurrently. It does not block.
func (m *Metrics) Counter(name, help string, value func() uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.extras = append(m.extras, extraCounter{name, help, value})
}

// ServeHTTP answers with the metrics whoever asks: for a listener that only operators
// reach. A Server answers GET /metrics to principals with RightMetrics.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "the request has to be a GET", http.StatusMethodNotAllowed)
		return
	}
	m.write(w)
}

func (m *Metrics) write(w http.ResponseWriter) {
	page := m.text()
	h := w.Header()
	h.Set("Content-Type", metrics.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(page)))
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page) // a client that is gone
}

// bind makes m the metrics of a server.
func (m *Metrics) bind(s *Server) error {
	if !m.server.CompareAndSwap(nil, s) {
		return errors.New("lockserver: the Metrics belong to another server")
	}
	return nil
}

// counted returns events that are counted before next receives them.
func (m *Metrics) counted(next Events) Events {
	return Events{
		Request: func(e RequestInfo) {
			m.requests.Add(e.Endpoint, strconv.Itoa(e.Status), e.Code)
			m.tookOf(e.Endpoint).Observe(e.Took)
			if next.Request != nil {
				next.Request(e)
			}
		},
		Hold: func(e HoldInfo) {
			m.holds.Add(string(e.Event), e.Reason)
			if next.Hold != nil {
				next.Hold(e)
			}
		},
		Denied: func(e DeniedInfo) {
			m.denied.Add(e.Code)
			if next.Denied != nil {
				next.Denied(e)
			}
		},
		Break: func(e BreakInfo) error {
			m.breaks.Add()
			if next.Break != nil {
				return next.Break(e)
			}
			return nil
		},
	}
}

func (m *Metrics) tookOf(endpoint string) *metrics.Histogram {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.took[endpoint]
	if h == nil {
		h = &metrics.Histogram{}
		m.took[endpoint] = h
	}
	return h
}

// text returns the page.
func (m *Metrics) text() []byte {
	var t metrics.Text
	if s := m.server.Load(); s != nil {
		if m.observed.Load() {
			m.locks.Write(&t, s.traits.Scheme)
		}
		gaugesOf(s).write(&t, s.options.Version)
	}
	m.requests.Write(&t, "holdfast_server_requests_total", "Answers, by endpoint, HTTP status and code of a problem.")
	m.mu.Lock()
	took, extras := maps.Clone(m.took), slices.Clone(m.extras)
	m.mu.Unlock()
	t.Family("holdfast_server_request_duration_seconds", "histogram", "Duration of requests, with the time that a poll or a stream lasts.")
	for _, endpoint := range slices.Sorted(maps.Keys(took)) {
		took[endpoint].Write(&t, "holdfast_server_request_duration_seconds", "endpoint", endpoint)
	}
	m.holds.Write(&t, "holdfast_server_holds_total", "What happened to holds: grant, resume, release, lost with a reason, given_back.")
	m.denied.Write(&t, "holdfast_server_denied_total", "Requests that were refused for their sender or his rights, by code.")
	m.breaks.Write(&t, "holdfast_server_breaks_total", "Breaks that were asked for by principals with the right.")
	for _, e := range extras {
		t.Family(e.name, "counter", e.help)
		t.Sample(e.name, float64(e.value()))
	}
	return t.Bytes()
}

// gauges has the numbers of what a server has open.
type gauges struct {
	holds, waits, polls, streams, viewers int
	draining                              bool
}

func gaugesOf(s *Server) (g gauges) {
	u := s.quota.total()
	g.holds, g.waits, g.polls = u.holds, u.waits, u.polls
	g.streams = s.subscribers.count()
	g.viewers = s.scans.count()
	g.draining = s.table.isEnding()
	return g
}

func (g gauges) write(t *metrics.Text, version string) {
	t.Family("holdfast_server_info", "gauge", "The version of the server, as a label.")
	t.Sample("holdfast_server_info", 1, "version", version)
	draining := 0
	if g.draining {
		draining = 1
	}
	for _, e := range []struct {
		name, help string
		value      int
	}{
		{"draining", "1 while the server takes no new holds.", draining},
		{"holds", "Holds of clients, waits included.", g.holds},
		{"waits", "Holds of clients that wait for their turn.", g.waits},
		{"polls", "Requests that wait, and streams.", g.polls},
		{"event_streams", "Streams of clients' events.", g.streams},
		{"viewers", "Clients that watch the locks in use.", g.viewers},
	} {
		t.Family("holdfast_server_"+e.name, "gauge", e.help)
		t.Sample("holdfast_server_"+e.name, float64(e.value))
	}
}

// serveMetrics answers GET /metrics. The metrics are those of all names, so that the
// right has to cover all names.
func serveMetrics(s *Server, c *call) {
	if !c.who.may(RightMetrics, "") {
		p := newProblem(http.StatusForbidden, "forbidden", "the principal has no right to metrics with the empty prefix")
		s.gate.denied(c, p, errors.New(p.detail))
		c.fail(p)
		return
	}
	c.status = http.StatusOK
	s.metrics.write(c.w)
}
