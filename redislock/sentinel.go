package redislock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// Sentinel keeps queues in the server that Sentinels call the primary, and
// goes over to another server when they do. It implements [driver.Driver],
// [driver.Identifier] and [driver.Checker].
type Sentinel struct {
	router
	life      server.Life
	at        *multiAddress
	channel   string // of the pushes, at every primary
	term      atomic.Pointer[term]
	sentinels sentinelSet
}

// term is the time of one primary in that role.
type term struct {
	d     *server.Driver
	addr  string
	ended chan struct{} // closed when another primary has followed
}

var (
	_ driver.Driver     = (*Sentinel)(nil)
	_ driver.Identifier = (*Sentinel)(nil)
	_ driver.Checker    = (*Sentinel)(nil)
	_ driver.Noticer    = (*Sentinel)(nil)
	_ driver.Marker     = (*Sentinel)(nil)
)

// OpenSentinel returns a driver for the primary that Sentinels watch under a
// name, with connections of its own:
//
//	redis-sentinel://[user[:password]@]host[:port][,host[:port]...]/name[?option=value&...]
//
// The scheme rediss-sentinel is the same over TLS, to the Sentinels too. The
// hosts are Sentinels, their port is 26379 if not given; user and password are
// those of the Redis servers. The options are those of [Open], and:
//
//	db                 the database, 0 if not given
//	sentinel_user      user at the Sentinels, if they want one
//	sentinel_password  and its password
//
// OpenSentinel blocks until the primary has given its version and role. Errors
// are as in [Open].
func OpenSentinel(ctx context.Context, url string) (*Sentinel, error) {
	m, err := parseSentinel(url)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("redislock: open: %w", err)
	}
	s := &Sentinel{at: m, channel: server.NewChannel()}
	s.life.Start()
	s.router = router{func(ctx context.Context, _ string, f func(*server.Driver) error) error { return s.onPrimary(ctx, f) }}
	s.sentinels.init(s)
	if err := s.sentinels.find(ctx, nil); err != nil {
		s.Close()
		return nil, openErr(ctx, m.master+" at "+m.address.addr, err)
	}
	s.life.Begin(s.sentinels.follow)
	return s, nil
}

// connect returns a new driver for a primary.
func (s *Sentinel) connect(ctx context.Context, addr string) (*server.Driver, error) {
	set := server.Setup{Settings: s.at.Settings, Replaceable: true, Channel: s.channel}
	return s.at.address.to(addr).dial(ctx, func(l client.Library) (*server.Driver, error) {
		set.Lib = l
		return server.Open(ctx, set)
	})
}

// follow makes d the driver of the present primary.
func (s *Sentinel) follow(d *server.Driver, addr string) {
	old := s.term.Swap(&term{d: d, addr: addr, ended: make(chan struct{})})
	if old != nil {
		close(old.ended)
		if !s.life.Begin(func() { old.d.Close() }) {
			old.d.Close()
		}
	}
}

// Notices implements [driver.Noticer].
func (s *Sentinel) Notices() []driver.Finding { return s.term.Load().d.Notices() }

// Traits implements [driver.Driver].
func (s *Sentinel) Traits() driver.Traits {
	t := traits
	t.Scheme = "redis-sentinel"
	return t
}

// Close implements [driver.Driver], as [Driver.Close] does.
func (s *Sentinel) Close() error {
	s.life.Finish(func() {
		var wg sync.WaitGroup
		wg.Go(s.sentinels.close)
		if r := s.term.Load(); r != nil {
			wg.Go(func() { r.d.Close() })
		}
		wg.Wait()
	})
	return nil
}

// onPrimary calls f with the driver of the primary, and once more if that
// driver was replaced before anything was sent.
func (s *Sentinel) onPrimary(ctx context.Context, f func(d *server.Driver) error) error {
	if err := s.life.CheckOpen(ctx); err != nil {
		return err
	}
	for n := 0; ; n++ {
		err := f(s.term.Load().d)
		s.noteError(err)
		if !errors.Is(err, server.ErrDropped) || n == maxHops {
			return s.sentinels.lastAnswer.DuringElection(err)
		}
	}
}

// noteError makes sentinelSet ask the Sentinels if a request failed as it would
// at a server that is no longer the primary.
func (s *Sentinel) noteError(err error) {
	if err == nil {
		return
	}
	switch driver.ClassOf(err) {
	case driver.Unknown, driver.Unavailable:
		s.sentinels.refresh()
	}
}

// Join implements [driver.Driver].
func (s *Sentinel) Join(ctx context.Context, t *driver.Ticket, wait bool) (p driver.Status, err error) {
	err = s.onPrimary(ctx, func(d *server.Driver) error {
		p, err = d.Join(ctx, t, wait)
		return err
	})
	return p, err
}

// Renew implements [driver.Driver].
func (s *Sentinel) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return s.each(ctx, refs, (*server.Driver).Renew)
}

// Leave implements [driver.Driver].
func (s *Sentinel) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return s.each(ctx, refs, (*server.Driver).Leave)
}

func (s *Sentinel) each(ctx context.Context, refs []driver.Ref, f func(*server.Driver, context.Context, []driver.Ref) ([]driver.Status, error)) (places []driver.Status, err error) {
	err = s.onPrimary(ctx, func(d *server.Driver) error {
		places, err = f(d, ctx, refs)
		for _, p := range places {
			if errors.Is(p.Err, server.ErrDropped) { // true of all tickets, or of none
				return server.ErrDropped
			}
			s.noteError(p.Err)
		}
		return err
	})
	if len(places) > 0 {
		return places, nil
	}
	return nil, err
}

// Watch implements [driver.Driver]. The subscription follows the primary.
func (s *Sentinel) Watch(ctx context.Context, notify func(id string, p driver.Status)) error {
	return s.onPrimary(ctx, func(*server.Driver) error {
		return server.WatchAt(ctx, &s.life, func() (*server.Driver, <-chan struct{}) {
			r := s.term.Load()
			return r.d, r.ended
		}, notify)
	})
}

// Names implements [driver.Driver].
func (s *Sentinel) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := s.onPrimary(ctx, func(d *server.Driver) error {
			for name, err := range d.Names(ctx, prefix) {
				if err != nil {
					return err
				}
				if !yield(name, nil) {
					return nil
				}
			}
			return nil
		})
		if err != nil {
			yield("", err)
		}
	}
}

// Identity implements [driver.Identifier]: it is the primary's identity, which
// changes with a failover.
func (s *Sentinel) Identity(ctx context.Context) (id string, err error) {
	err = s.onPrimary(ctx, func(d *server.Driver) error {
		id, err = d.Identity(ctx)
		return err
	})
	return id, err
}

// Check implements [driver.Checker]: it judges what the primary reports about
// itself, and how many Sentinels name that primary.
func (s *Sentinel) Check(ctx context.Context) (fs []driver.Finding, err error) {
	err = s.onPrimary(ctx, func(d *server.Driver) error {
		fs, err = d.Check(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	addr := s.term.Load().addr
	votes, _ := s.sentinels.poll(ctx, len(s.at.hosts)) // no answer is no vote
	f := driver.Finding{Topic: "sentinels", Detail: fmt.Sprintf("%d of %d name the primary that is used", votes[addr], len(s.at.hosts))}
	switch {
	case votes[addr] <= len(s.at.hosts)/2:
		f.Level, f.Advice = driver.Problem, "check the Sentinels: without a majority of them no failover takes place"
	case votes[addr] < len(s.at.hosts):
		f.Level, f.Advice = driver.Warning, "check the Sentinels that do not answer or that name another primary"
	case len(s.at.hosts) < 3:
		f.Level, f.Advice = driver.Warning, "run at least three Sentinels, and name all of them in the URL"
	}
	return append(fs, f), nil
}
