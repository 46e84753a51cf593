package redislock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/sentinel"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// Sentinel keeps queues in the server that Sentinels call the primary, and
// goes over to another server when they do. It implements [driver.Driver],
// [driver.Identifier] and [driver.Checker].
type Sentinel struct {
	router
	primary *sentinel.Primary
	channel string // of the pushes, at every primary
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
	s := &Sentinel{channel: server.NewChannel()}
	s.primary, err = sentinel.Open(ctx, sentinel.Config{
		Hosts: m.hosts, Master: m.master,
		Dial: func(ctx context.Context, host string) (*server.Driver, error) {
			return m.sentinel.to(host).dial(ctx, func(l client.Library) (*server.Driver, error) {
				return server.Unchecked(server.Setup{Lib: l, Replaceable: true}), nil
			})
		},
		Connect: func(ctx context.Context, addr string) (*server.Driver, error) {
			return m.to(addr).dial(ctx, func(l client.Library) (*server.Driver, error) {
				return server.Open(ctx, server.Setup{Settings: m.Settings, Lib: l, Replaceable: true, Channel: s.channel})
			})
		},
	})
	if err != nil {
		return nil, openErr(ctx, m.master+" at "+m.address.addr, err)
	}
	s.router = router{func(ctx context.Context, _ string, f func(*server.Driver) error) error { return s.primary.On(ctx, f) }}
	return s, nil
}

// Notices implements [driver.Noticer].
func (s *Sentinel) Notices() []driver.Finding {
	d, _, _ := s.primary.Term()
	return d.Notices()
}

// Traits implements [driver.Driver].
func (s *Sentinel) Traits() driver.Traits {
	t := traits
	t.Scheme = "redis-sentinel"
	return t
}

// Close implements [driver.Driver], as [Driver.Close] does.
func (s *Sentinel) Close() error {
	s.primary.Close()
	return nil
}

// Join implements [driver.Driver].
func (s *Sentinel) Join(ctx context.Context, t *driver.Ticket, wait bool) (p driver.Status, err error) {
	err = s.primary.On(ctx, func(d *server.Driver) error {
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
	err = s.primary.On(ctx, func(d *server.Driver) error {
		places, err = f(d, ctx, refs)
		for _, p := range places {
			if errors.Is(p.Err, server.ErrDropped) { // true of all tickets, or of none
				return server.ErrDropped
			}
			s.primary.NoteError(p.Err)
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
	return s.primary.On(ctx, func(*server.Driver) error {
		return server.WatchAt(ctx, &s.primary.Life, func() (*server.Driver, <-chan struct{}) {
			d, _, ended := s.primary.Term()
			return d, ended
		}, notify)
	})
}

// Names implements [driver.Driver].
func (s *Sentinel) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := s.primary.On(ctx, func(d *server.Driver) error {
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
	err = s.primary.On(ctx, func(d *server.Driver) error {
		id, err = d.Identity(ctx)
		return err
	})
	return id, err
}

// Check implements [driver.Checker]: it judges what the primary reports about
// itself, and how many Sentinels name that primary.
func (s *Sentinel) Check(ctx context.Context) (fs []driver.Finding, err error) {
	err = s.primary.On(ctx, func(d *server.Driver) error {
		fs, err = d.Check(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, addr, _ := s.primary.Term()
	votes, all := s.primary.Votes(ctx), len(s.primary.Hosts)
	f := driver.Finding{Topic: "sentinels", Detail: fmt.Sprintf("%d of %d name the primary that is used", votes[addr], all)}
	switch {
	case votes[addr] <= all/2:
		f.Level, f.Advice = driver.Problem, "check the Sentinels: without a majority of them no failover takes place"
	case votes[addr] < all:
		f.Level, f.Advice = driver.Warning, "check the Sentinels that do not answer or that name another primary"
	case all < 3:
		f.Level, f.Advice = driver.Warning, "run at least three Sentinels, and name all of them in the URL"
	}
	return append(fs, f), nil
}
