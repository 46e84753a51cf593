package lockserver

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver/internal/page"
)

// Options are the settings of a Server. The zero Options are those of a server for the
// processes of one machine: everybody is LocalName.
type Options struct {
	// Auth finds out who sends a request; nil: everybody is LocalName.
	Auth *Auth
	// Limits bounds what clients can send and hold open.
	Limits Limits
	// Events receives what happens, for logs, metrics and audits.
	Events Events
	// Metrics has what GET /metrics answers; nil: those of the server alone, without
	// its client's. It belongs to one server.
	Metrics *Metrics
	// Hosts are the names, without ports, that requests may have as their Host. None:
	// localhost and every IP address, which no foreign page can make a browser send
	// by way of a name of its own.
	Hosts []string
	// Realm separates the ids and owners of servers over one store that do not serve
	// the same clients.
	Realm string
	// Version is reported by GET /v1/server.
	Version string
}

// Server answers the requests of lock clients; it is an http.Handler. It is safe for
// concurrent use.
//
// Its fields are its rooms, each with its own state and mutex: gate (who asks), group (of
// the store), quota (what principals have open), table (holds by id), subscribers (to
// events), scans (for those who watch) and metrics. The table's mutex may be held while
// that of quota or subscribers is taken; otherwise no two are held at once.
type Server struct {
	store   *store
	traits  holdfast.Traits
	options Options
	name    string // the host and a random part
	metrics *Metrics
	routes  map[string]route // by "METHOD /path"

	gate  *gate
	group *group
	ping  pinger

	quota       *quota
	subscribers *subscribers
	scans       scans
	table       *table
}

// route is one request that the server answers.
type route struct {
	// open: it needs no principal.
	open  bool
	serve func(s *Server, c *call)
}

// New returns a server over client, which must outlive it and stays the caller's. A client
// belongs to one server: two that share one do not know of each other's pinned waiters. New
// does not block. It returns an error for a nil client and for bad options.
func New(client *holdfast.Client, o Options) (*Server, error) {
	if client == nil {
		return nil, errors.New("lockserver: the client is nil")
	}
	traits := client.Traits()
	if traits.Scheme == "" && traits.MinTTL == 0 && traits.MaxTTL == 0 {
		return nil, errors.New("lockserver: a client that New did not make")
	}
	o.Limits = o.Limits.withDefaults(traits.MinTTL, traits.MaxTTL)
	if err := errors.Join(o.Auth.check(), o.Limits.check(traits.MinTTL, traits.MaxTTL)); err != nil {
		return nil, err
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	o.Events = o.Metrics.counted(o.Events)
	name, st, q, subs := serverName(), &store{client}, newQuota(o.Limits), new(subscribers)
	s := &Server{
		store: st, traits: traits, options: o, name: name, metrics: o.Metrics, routes: routes(),
		gate: newGate(o), group: &group{client: client, server: name, realm: o.Realm},
		quota: q, subscribers: subs, scans: scans{store: st}, table: newTable(st, o, traits, q, subs),
	}
	if err := s.metrics.bind(s); err != nil {
		return nil, err
	}
	return s, nil
}

// serverName returns a name that no other process has.
func serverName() string {
	host, _ := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	host = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return '_'
	}, host)
	var b [4]byte
	rand.Read(b[:]) // never fails
	return host[:min(len(host), 64)] + "." + hex.EncodeToString(b[:])
}

// Name returns the server's name in answers: the host's, and a random part for each
// Server.
func (s *Server) Name() string { return s.name }

// routes returns the requests that a server answers.
func routes() map[string]route {
	return map[string]route{
		"POST /v1/acquire":  {serve: (*Server).serveAcquire},
		"POST /v1/renew":    {serve: (*Server).serveRenew},
		"POST /v1/release":  {serve: (*Server).serveRelease},
		"POST /v1/hold":     {serve: (*Server).serveHold},
		"POST /v1/break":    {serve: (*Server).serveBreak},
		"GET /v1/events":    {serve: (*Server).serveEvents},
		"GET /v1/lock":      {serve: (*Server).serveLock},
		"GET /v1/locks":     {serve: (*Server).serveLocks},
		"GET /v1/watch":     {serve: (*Server).serveWatch},
		"GET /openapi.json": {open: true, serve: (*Server).serveOpenAPI},
		"GET /v1/server":    {serve: (*Server).serveServer},
		"GET /healthz":      {open: true, serve: (*Server).serveHealth},
		"GET /readyz":       {open: true, serve: (*Server).serveReady},
		"GET /metrics":      {serve: serveMetrics},
		"GET /":             {open: true, serve: servePage},
		"GET /page.css":     {open: true, serve: servePage},
		"GET /page.js":      {open: true, serve: servePage},
	}
}

// sender is the origin of a request: principal, address, and when its handler began.
type sender struct {
	who    Principal
	remote string
	begun  time.Time
}

// call is one request on its way.
type call struct {
	s    *Server
	w    http.ResponseWriter
	r    *http.Request
	text bool
	sender
	// status and code are those of the answer, for Events.
	status int
	code   string
}

// everyAnswer has the headers that all answers have.
var everyAnswer = http.Header{
	"Holdfast":               {"1"},
	"Cache-Control":          {"no-store, no-transform"},
	"X-Accel-Buffering":      {"no"},
	"X-Content-Type-Options": {"nosniff"},
}

// ServeHTTP answers one request. A long poll blocks for as long as its client asks,
// 30 s at most, and a stream until its client or Drain ends it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, w: w, r: r, text: wantsText(r), sender: sender{begun: time.Now(), remote: remoteOf(r)}}
	maps.Copy(w.Header(), everyAnswer)
	endpoint := endpointOf(r)
	rt, ok := s.routes[endpoint]
	switch p := s.admit(c, rt, ok); {
	case p != nil && !ok:
		endpoint = "other"
		c.fail(p)
	case p != nil:
		c.fail(p)
	default:
		rt.serve(s, c)
	}
	if f := s.options.Events.Request; f != nil {
		f(RequestInfo{Endpoint: endpoint, Status: c.status, Code: c.code, Took: time.Since(c.begun)})
	}
}

// endpointOf returns the method and path of a request, as routes has them. Probes may be
// asked by HEAD, as some do: net/http leaves the body of the answer out.
func endpointOf(r *http.Request) string {
	method := r.Method
	if method == http.MethodHead && (r.URL.Path == "/healthz" || r.URL.Path == "/readyz") {
		method = http.MethodGet
	}
	return method + " " + r.URL.Path
}

// admit refuses a request that nobody may send, and finds out who sends it.
func (s *Server) admit(c *call, rt route, ok bool) *problem {
	if p := s.gate.checkOrigin(c.r); p != nil {
		s.gate.denied(c, p, errors.New(p.detail))
		return p
	}
	if !ok {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if _, other := s.routes[method+" "+c.r.URL.Path]; other {
				c.w.Header().Set("Allow", method)
				return newProblem(http.StatusMethodNotAllowed, "bad_request", "the request has to be a %s", method)
			}
		}
		return newProblem(http.StatusNotFound, "bad_request", "the server has nothing at this path")
	}
	if rt.open {
		return nil
	}
	who, err := s.gate.identify(c.r)
	if err != nil {
		c.w.Header().Set("WWW-Authenticate", "Bearer")
		return s.gate.unidentified(c, err)
	}
	c.who = who
	if c.r.Method == http.MethodPost && c.r.URL.RawQuery != "" {
		return newProblem(http.StatusBadRequest, "unknown_field", "the fields of a POST are in its body, and not in the URL")
	}
	if err := s.group.know(c.r.Context()); err != nil {
		return problemOf(err)
	}
	return nil
}

// identifyAgain looks up the sender of a stream's request once more: a stream outlasts a
// change of rights.
func (c *call) identifyAgain() *problem {
	who, err := c.s.gate.identify(c.r)
	if err == nil && who.Name != c.who.Name {
		err = fmt.Errorf("lockserver: the request of principal %q has become one of %q", c.who.Name, who.Name)
	}
	c.who = Principal{Name: c.who.Name, Grants: who.Grants}
	if err != nil {
		c.who.Grants = nil
		return c.s.gate.unidentified(c, err)
	}
	return nil
}

// may refuses a request for a name without the right to it.
func (c *call) may(right Right, name string) *problem {
	if c.who.may(right, name) {
		return nil
	}
	p := forbidden(right, name)
	c.s.gate.denied(c, p, errors.New(p.detail))
	return p
}

// sign adds what all answers have.
func (s *Server) sign(f fields) fields {
	f = f.with("server", s.name)
	if g := s.group.known(); g != "" {
		f = f.with("group", g)
	}
	return f
}

// answer writes a finite answer, with its length. It returns an error if not all of it
// was handed to the connection.
func (c *call) answer(status int, f fields) error {
	return c.write(status, c.s.sign(f), "application/json")
}

// stand answers where an id stands, unless its client is gone.
func (c *call) stand(st standing) {
	if st.unsent {
		return
	}
	switch status, f, bad := st.answer(); {
	case bad != nil:
		c.fail(bad)
	default:
		_ = c.answer(status, f) // a client that is gone asks again
	}
}

// fail writes a problem.
func (c *call) fail(p *problem) {
	if p.after > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(int(max(1, (p.after+time.Second-1)/time.Second))))
	}
	c.code = p.code
	_ = c.write(p.status, c.s.sign(p.body()), "application/problem+json") // a client that is gone
}

func (c *call) write(status int, f fields, kind string) error {
	out := []byte(nil)
	if c.text {
		kind, out = "text/plain; charset=utf-8", f.asText()
	} else {
		out = f.encoded()
	}
	c.status = status
	c.w.Header().Set("Content-Type", kind)
	c.w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(ioTimeout)) // not every server can
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	c.w.WriteHeader(status)
	if _, err := c.w.Write(out); err != nil {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// remoteOf returns the address of the client, without its port.
func remoteOf(r *http.Request) string { return hostOf(r.RemoteAddr) }

// serveServer answers GET /v1/server: what the server can do, and what the principal
// may.
func (s *Server) serveServer(c *call) {
	var rights []fields
	for _, g := range c.who.Grants {
		f := fields{{"prefix", g.Prefix}, {"may", g.May}}
		if g.Waiters > 0 {
			f = f.with("waiters", g.Waiters)
		}
		if g.MaxHold > 0 {
			f = f.with("max_hold_ms", g.MaxHold.Milliseconds())
		}
		rights = append(rights, f)
	}
	l := s.options.Limits
	_ = c.answer(http.StatusOK, fields{
		{"version", s.options.Version},
		{"features", features},
		{"draining", s.table.isEnding()},
		{"traits", fields{
			{"scheme", s.traits.Scheme}, {"fencing", s.traits.Fencing}, {"shared", s.traits.Shared}, {"owner", s.traits.Owner},
			{"fair", s.traits.Fair}, {"push", s.traits.Push}, {"survives_restart", s.traits.SurvivesRestart},
			{"survives_failover", s.traits.SurvivesFailover},
		}},
		{"limits", fields{
			{"min_ttl_ms", l.MinTTL.Milliseconds()}, {"max_ttl_ms", l.MaxTTL.Milliseconds()}, {"name_bytes", l.NameSize},
			{"note_bytes", maxNoteSize}, {"body_bytes", maxBodySize}, {"batch", maxBatch}, {"max_wait_ms", maxWait.Milliseconds()},
			{"holds", l.Holds}, {"waiters", l.Waiters}, {"polls", l.Polls},
		}},
		{"principal", c.who.Name},
		{"rights", rights},
	})
}

// servePage answers with a file of the page, which asks for the rest with the rights of
// its user.
func servePage(_ *Server, c *call) { c.status = page.Serve(c.w, c.r) }

// features are the abilities that a client may look for.
var features = []string{"acquire", "renew", "release", "events", "hold", "lock", "locks", "watch", "break", "kinds"}
