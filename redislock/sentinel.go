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
)

// Sentinel keeps lines in the server that Sentinels call the primary, and goes
// on with another one when they do. It implements [driver.Driver],
// [driver.Identifier] and [driver.Checker].
type Sentinel struct {
	life
	at      *several
	channel string // of the pushes, at every primary
	now     atomic.Pointer[reign]
	guides  guides
}

// reign is the time of one primary.
type reign struct {
	d    *Driver
	addr string
	over chan struct{} // closed when another one has followed
}

var (
	_ driver.Driver     = (*Sentinel)(nil)
	_ driver.Identifier = (*Sentinel)(nil)
	_ driver.Checker    = (*Sentinel)(nil)
	_ driver.Noticer    = (*Sentinel)(nil)
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
// OpenSentinel blocks until the primary has said what it is. Errors are as in
// [Open].
func OpenSentinel(ctx context.Context, url string) (*Sentinel, error) {
	m, err := parseSentinel(url)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("redislock: open: %w", err)
	}
	s := &Sentinel{at: m, channel: newChannel()}
	s.life.start()
	s.guides.init(s)
	if err := s.guides.find(ctx, nil); err != nil {
		s.Close()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = ended(ctx)
		}
		return nil, fmt.Errorf("redislock: open %s at %s: %w", m.master, m.address.addr, err)
	}
	s.begin(s.guides.follow)
	return s, nil
}

// connect makes the driver of a primary.
func (s *Sentinel) connect(ctx context.Context, addr string) (d *Driver, err error) {
	a := s.at.address.to(addr)
	life, end := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, end)()
	defer func() {
		if err != nil {
			end()
		}
	}()
	client, watch, err := a.connect(life)
	if err != nil {
		return nil, driver.Wrap(driver.Unavailable, err)
	}
	var g *guard
	if a.guard != nil {
		g = newGuard(a.guard.longest)
	}
	d, err = open(ctx, setup{
		client: client, alone: watch, end: end, prefix: a.prefix, guard: g,
		replaceable: true, channel: s.channel, confirms: a.confirms, picky: a.picky,
	})
	if err == nil && ctx.Err() != nil { // which has ended the connections
		d.Close()
		err = &driver.Error{Class: driver.Unavailable, Err: context.Cause(ctx)}
	}
	return d, err
}

// follow makes a driver the one of the present primary.
func (s *Sentinel) follow(d *Driver, addr string) {
	old := s.now.Swap(&reign{d: d, addr: addr, over: make(chan struct{})})
	if old != nil {
		close(old.over)
		if !s.begin(func() { old.d.Close() }) {
			old.d.Close()
		}
	}
}

// Notices implements [driver.Noticer].
func (s *Sentinel) Notices() []driver.Finding { return s.now.Load().d.Notices() }

// Traits implements [driver.Driver].
func (s *Sentinel) Traits() driver.Traits {
	t := traits
	t.Scheme = "redis-sentinel"
	return t
}

// Close implements [driver.Driver], as [Driver.Close] does.
func (s *Sentinel) Close() error {
	s.finish(func() {
		var wg sync.WaitGroup
		wg.Go(s.guides.close)
		if r := s.now.Load(); r != nil {
			wg.Go(func() { r.d.Close() })
		}
		wg.Wait()
	})
	return nil
}

// on calls f with the driver of the primary, and once more when that was
// replaced before anything was sent.
func (s *Sentinel) on(ctx context.Context, f func(d *Driver) error) error {
	if s.over() {
		return driver.ErrClosed
	}
	if err := driver.Before(ctx); err != nil {
		return err
	}
	for n := 0; ; n++ {
		err := f(s.now.Load().d)
		s.judge(err)
		if !errors.Is(err, errDropped) || n == hops {
			return err
		}
	}
}

// judge has the Sentinels asked when a request failed as it would at a primary
// that is one no more.
func (s *Sentinel) judge(err error) {
	if err == nil {
		return
	}
	switch driver.ClassOf(err) {
	case driver.Unknown, driver.Unavailable:
		s.guides.doubt()
	}
}

// Join implements [driver.Driver].
func (s *Sentinel) Join(ctx context.Context, t *driver.Ticket, wait bool) (p driver.Place, err error) {
	err = s.on(ctx, func(d *Driver) error {
		p, err = d.Join(ctx, t, wait)
		return err
	})
	return p, err
}

// Renew implements [driver.Driver].
func (s *Sentinel) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return s.each(ctx, refs, (*Driver).Renew)
}

// Leave implements [driver.Driver].
func (s *Sentinel) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	return s.each(ctx, refs, (*Driver).Leave)
}

func (s *Sentinel) each(ctx context.Context, refs []driver.Ref, f func(*Driver, context.Context, []driver.Ref) ([]driver.Place, error)) (places []driver.Place, err error) {
	err = s.on(ctx, func(d *Driver) error {
		places, err = f(d, ctx, refs)
		for _, p := range places {
			if errors.Is(p.Err, errDropped) { // true of all, or of none
				return errDropped
			}
			s.judge(p.Err)
		}
		return err
	})
	if len(places) > 0 {
		return places, nil
	}
	return nil, err
}

// Watch implements [driver.Driver]. It follows the primary.
func (s *Sentinel) Watch(ctx context.Context, moved func(id string, p driver.Place)) error {
	return s.on(ctx, func(*Driver) error {
		w := &watch{life: &s.life, moved: moved, at: func() (*Driver, <-chan struct{}) {
			r := s.now.Load()
			return r.d, r.over
		}}
		return w.begin(ctx)
	})
}

// Inspect implements [driver.Driver].
func (s *Sentinel) Inspect(ctx context.Context, name string) (l driver.Line, err error) {
	err = s.on(ctx, func(d *Driver) error {
		l, err = d.Inspect(ctx, name)
		return err
	})
	return l, err
}

// Names implements [driver.Driver].
func (s *Sentinel) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := s.on(ctx, func(d *Driver) error {
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

// Break implements [driver.Driver].
func (s *Sentinel) Break(ctx context.Context, name, ticketID string) error {
	return s.on(ctx, func(d *Driver) error { return d.Break(ctx, name, ticketID) })
}

// Identity implements [driver.Identifier]: the primary's, which is another one
// after a failover.
func (s *Sentinel) Identity(ctx context.Context) (id string, err error) {
	err = s.on(ctx, func(d *Driver) error {
		id, err = d.Identity(ctx)
		return err
	})
	return id, err
}

// Check implements [driver.Checker]: what the primary says of itself, and how
// many Sentinels call it so.
func (s *Sentinel) Check(ctx context.Context) (fs []driver.Finding, err error) {
	err = s.on(ctx, func(d *Driver) error {
		fs, err = d.Check(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	addr := s.now.Load().addr
	votes := s.guides.votes(ctx)
	f := driver.Finding{Topic: "sentinels", Detail: fmt.Sprintf("%d of %d name the primary that is used", votes[addr], len(s.at.hosts))}
	switch {
	case votes[addr] <= len(s.at.hosts)/2:
		f.Level, f.Advice = driver.Problem, "look after the Sentinels: without most of them nobody replaces a primary"
	case votes[addr] < len(s.at.hosts):
		f.Level, f.Advice = driver.Warning, "look after the Sentinels that do not answer, or name another primary"
	case len(s.at.hosts) < 3:
		f.Level, f.Advice = driver.Warning, "name all Sentinels in the URL, of which there had better be three"
	}
	return append(fs, f), nil
}
