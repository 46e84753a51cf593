//go:build unix

package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/lockserver/lockauth"
	"github.com/holdfast-go/holdfast/slogholdfast"
)

// Times of a server.
const (
	ioTimeout    = 5 * time.Second // to read headers, to read the rest of a body, and to write
	idleTimeout  = 90 * time.Second
	pingAfter    = 15 * time.Second // of silence, on HTTP/2
	pingTimeout  = 10 * time.Second
	reloadEvery  = 5 * time.Second
	closeTimeout = 2 * time.Second // for answers that are under way at the end
	maxHeaders   = 16 << 10        // bytes
	maxStreams   = 250             // requests of one HTTP/2 connection at once
)

// run serves until a signal ends it.
func (s *serveCommand) run() error {
	s.log = s.newLog()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	location, err := s.locate()
	if err != nil {
		return err
	}
	if err := s.checkStore(location); err != nil {
		return err
	}
	if err := s.readFiles(); err != nil {
		return err
	}
	sockets, err := s.bind(context.Background())
	if err != nil {
		return err
	}
	defer sockets.close()
	ctx, stop := cancelOn(context.Background(), signals)
	s.metrics = lockserver.NewMetrics()
	client, location, err := s.open(ctx, holdfast.WithObserver(slogholdfast.Observer(s.log)), holdfast.WithObserver(s.metrics.Observer()))
	stop()
	if err != nil {
		return cause(ctx, err)
	}
	// The client is not closed: Close would release locks that clients still work
	// under. The end of the process leaves them to their leases.
	srv, err := s.newServer(client, sockets)
	if err != nil {
		return usage("%w", err)
	}
	return s.serveUntilSignal(srv, sockets, location, signals)
}

// newLog returns the log on standard error.
func (s *serveCommand) newLog() *slog.Logger {
	if s.console.json {
		return slog.New(slog.NewJSONHandler(s.console.stderr(), nil))
	}
	return slog.New(slog.NewTextHandler(s.console.stderr(), nil))
}

// readFiles reads the files that the flags name.
func (s *serveCommand) readFiles() (err error) {
	if s.authFile != "" {
		if s.rules, err = lockauth.OpenFile(s.authFile); err != nil {
			return usage("--auth: %w", err)
		}
	}
	if s.tlsCert != "" {
		if s.certs, err = loadCertificates(s.tlsCert, s.tlsKey, s.clientCA); err != nil {
			return usage("%w", err)
		}
		s.warnCertificate()
	}
	if s.auditFile != "" {
		if s.auditTo, err = openAudit(s.auditFile); err != nil {
			return usage("--%w", err)
		}
	}
	return nil
}

// warnCertificate reports a certificate that is over, which clients refuse.
func (s *serveCommand) warnCertificate() {
	if ends := s.certs.state.Load().ends; time.Now().After(ends) {
		s.log.Warn("the server's certificate has expired", "file", s.tlsCert, "at", ends)
	}
}

// server is a lock server with its listeners.
type server struct {
	*serveCommand
	locks *lockserver.Server
	conns *connections
	web   *http.Server // of clients
	admin *http.Server // nil without --admin-listen
}

// newServer puts a server together; nothing is accepted yet.
func (s *serveCommand) newServer(client *holdfast.Client, sockets *listeners) (*server, error) {
	v := &server{serveCommand: s, conns: newConnections(s.connections)}
	who := &identifier{rules: s.rules, certs: s.certs, conns: v.conns}
	names := s.hosts
	if s.certs != nil {
		names = append(names, s.certs.state.Load().names...)
	}
	options := lockserver.Options{
		Auth: &lockserver.Auth{Identify: who.identify}, Limits: s.limits, Hosts: hostsOf(sockets, names), Realm: s.realm,
		Version: ownVersion().Version, Metrics: s.metrics,
	}
	// The name of the server is known when it is made, which takes the events.
	options.Events = lockserver.Events{
		Hold:   func(h lockserver.HoldInfo) { s.audit.hold(h) },
		Denied: func(d lockserver.DeniedInfo) { s.audit.deny(d) },
		Break:  func(b lockserver.BreakInfo) error { return s.audit.breaks(b) },
	}
	if s.auditFile == "" {
		options.Events = lockserver.Events{}
	}
	locks, err := lockserver.New(client, options)
	if err != nil {
		return nil, err
	}
	v.locks = locks
	if s.auditFile != "" {
		s.audit = newAudit(s.auditFile, locks.Name(), s.auditTo, s.log)
		s.metrics.Counter("holdfast_server_audit_dropped_total", "Objects that the audit has dropped.", s.audit.allDropped)
	}
	v.web = v.newWeb(boundBody(locks))
	v.web.ConnContext, v.web.ConnState = v.conns.begin, v.conns.change
	if sockets.admin != nil {
		v.admin = v.newWeb(boundBody(probes(locks, s.metrics)))
	}
	return v, nil
}

// newWeb returns an HTTP server with bounds on everything that a client can send or
// hold open. The answers have bounds of their own, since a long poll may take longer
// than another answer.
func (v *server) newWeb(h http.Handler) *http.Server {
	web := &http.Server{
		Handler: h, ReadHeaderTimeout: ioTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: ioTimeout,
		},
		ErrorLog: slog.NewLogLogger(&rarely{Handler: v.log.Handler(), every: time.Second}, slog.LevelWarn),
	}
	if v.certs != nil {
		web.TLSConfig = v.certs.config()
	}
	return web
}

// boundBody bounds how long a client may take to send a body that h does not read:
// net/http reads it before it answers. The handler lifts the bound when it has read a
// body.
func boundBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(ioTimeout)) // a stream may be over
		}
		h.ServeHTTP(w, r)
	})
}

// probes answers /healthz and /readyz as locks does, and /metrics, whatever host is
// asked for: a prober calls an address that the server may not know as its own.
func probes(locks, metrics http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz":
			r.Host = "localhost"
			locks.ServeHTTP(w, r)
		case "/metrics":
			metrics.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// serveUntilSignal answers requests until SIGTERM or SIGINT, and then until the
// clients have left.
func (s *serveCommand) serveUntilSignal(v *server, sockets *listeners, l location, signals <-chan os.Signal) error {
	failed := make(chan error, len(sockets.clients)+1)
	var accepting sync.WaitGroup
	defer accepting.Wait()
	defer v.close()
	for _, c := range sockets.clients {
		accepting.Go(func() { failed <- v.accept(c) })
		s.log.Info("listening", "address", c.Addr().String(), "tls", s.isTLS(c))
	}
	if v.admin != nil {
		accepting.Go(func() { failed <- v.admin.Serve(sockets.admin) })
		s.log.Info("listening for probes", "address", sockets.admin.Addr().String())
	}
	s.log.Info("serving", "server", v.locks.Name(), "store", l.shown(), "version", ownVersion().Version)
	s.tellSystemd(daemon.SdNotifyReady)
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	watchdog := newWatchdog()
	defer watchdog.Stop()
	for {
		select {
		case err := <-failed:
			return fail(exitInternal, "listening: %w", err)
		case <-tick.C:
			s.reload(false)
		case <-watchdog.C:
			s.tellSystemd(daemon.SdNotifyWatchdog)
		case by := <-signals:
			if by == syscall.SIGHUP {
				s.reload(true)
				continue
			}
			return v.leave(by, signals, watchdog)
		}
	}
}

// isTLS reports whether a listener's clients have to use TLS.
func (s *serveCommand) isTLS(l net.Listener) bool {
	return s.certs != nil && l.Addr().Network() != "unix"
}

// accept accepts connections until the listener is closed.
func (v *server) accept(l net.Listener) error {
	if v.isTLS(l) {
		return v.web.ServeTLS(l, "", "")
	}
	return v.web.Serve(l)
}

// leave ends the service by a signal: clients go on at another server, or release
// their locks, and whatever is left lives out its lease.
func (v *server) leave(by os.Signal, signals <-chan os.Signal, watchdog *time.Ticker) error {
	v.log.Info("leaving: no new locks are taken", "signal", by.String(), "drain", v.drain.String())
	v.tellSystemd(daemon.SdNotifyStopping)
	ctx, cancel := context.WithTimeout(context.Background(), v.drain)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- v.locks.Drain(ctx) }()
	for {
		select {
		case err := <-done:
			if err != nil {
				v.log.Warn("some locks live out their leases", "error", err)
			}
			return nil
		case <-watchdog.C:
			v.tellSystemd(daemon.SdNotifyWatchdog)
		case again := <-signals:
			if again == syscall.SIGHUP {
				v.reload(true)
				continue
			}
			cancel()
			<-done
			return &signalError{again.(syscall.Signal)}
		}
	}
}

// close ends the listeners and connections, and then the audit.
func (v *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, web := range []*http.Server{v.web, v.admin} {
		if web != nil && web.Shutdown(ctx) != nil {
			_ = web.Close()
		}
	}
	if v.audit != nil {
		v.audit.close()
	}
}

// reload reads changed files again, and, on a signal, opens the audit anew.
func (s *serveCommand) reload(signalled bool) {
	if s.rules != nil {
		s.noteReload("auth", s.authFile, s.rules.Reload())
	}
	if s.certs != nil {
		err := s.certs.reload()
		s.noteReload("certificates", s.tlsCert, err)
		if err == nil {
			s.warnCertificate()
		}
	}
	if signalled && s.audit != nil {
		s.noteReload("audit", s.auditFile, s.audit.reopen())
	}
}

// noteReload reports the outcome of reading a file again.
func (s *serveCommand) noteReload(subject, file string, err error) {
	result := ""
	switch {
	case errors.Is(err, lockauth.ErrUnchanged):
		return
	case err != nil:
		result = message(err)
		s.log.Error("a file cannot be read again: the one before stays in force", "subject", subject, "file", file, "error", result)
	default:
		s.log.Info("read again", "subject", subject, "file", file)
	}
	if s.audit != nil {
		s.audit.add(auditEntry{Event: "reload", Kind: subject, Reason: result})
	}
}

// tellSystemd passes a state on to systemd, if it started this process.
func (s *serveCommand) tellSystemd(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("systemd cannot be notified", "error", err)
	}
}

// newWatchdog returns a ticker for the watchdog of systemd; without one it hardly
// ever ticks.
func newWatchdog() *time.Ticker {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		every = 24 * time.Hour
	}
	return time.NewTicker(every / 2)
}

// rarely passes one record on in a time, and with it how many it has left out. The
// HTTP server writes one for each broken connection, which clients can make at will.
type rarely struct {
	slog.Handler
	every time.Duration

	mu     sync.Mutex
	last   time.Time
	missed int
}

// Handle implements slog.Handler.
func (r *rarely) Handle(ctx context.Context, rec slog.Record) error {
	r.mu.Lock()
	if !r.last.IsZero() && rec.Time.Sub(r.last) < r.every && !strings.Contains(rec.Message, "panic") {
		r.missed++
		r.mu.Unlock()
		return nil
	}
	missed := r.missed
	r.last, r.missed = rec.Time, 0
	r.mu.Unlock()
	rec = rec.Clone()
	rec.Message = printable(strings.TrimSpace(rec.Message))
	if missed > 0 {
		rec.AddAttrs(slog.Int("suppressed", missed))
	}
	return r.Handler.Handle(ctx, rec)
}
