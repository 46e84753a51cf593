package redislock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// config says how to reach the Sentinels and the servers that they name.
type config struct {
	hosts  []string // the Sentinels
	master string   // the name that the Sentinels have for the primary
	// dial connects to a Sentinel.
	dial func(ctx context.Context, host string) (*server.Driver, error)
	// connect returns a new driver for a primary.
	connect func(ctx context.Context, addr string) (*server.Driver, error)
}

// primary is the server that Sentinels call the primary, whichever that is.
type primary struct {
	config
	life      server.Life
	now       atomic.Pointer[term]
	sentinels sentinelSet
}

// term is the time of one primary in that role.
type term struct {
	d     *server.Driver
	addr  string
	ended chan struct{} // closed when another primary has followed
}

// openPrimary finds the primary, and follows what the Sentinels say from then on.
func openPrimary(ctx context.Context, c config) (*primary, error) {
	p := newPrimary(c)
	if err := p.sentinels.find(ctx, nil); err != nil {
		p.close()
		return nil, err
	}
	p.life.Begin(p.sentinels.follow)
	return p, nil
}

func newPrimary(c config) *primary {
	p := &primary{config: c}
	p.life.Start()
	p.sentinels.init(p)
	return p
}

// follow makes d the driver of the present primary.
func (p *primary) follow(d *server.Driver, addr string) {
	old := p.now.Swap(&term{d: d, addr: addr, ended: make(chan struct{})})
	if old != nil {
		close(old.ended)
		if !p.life.Begin(func() { old.d.Close() }) {
			old.d.Close()
		}
	}
}

// term returns the driver of the present primary, its address, and a channel that is
// closed when another primary has followed.
func (p *primary) term() (d *server.Driver, addr string, ended <-chan struct{}) {
	t := p.now.Load()
	return t.d, t.addr, t.ended
}

// close ends the life.
func (p *primary) close() {
	p.life.Finish(func() {
		var wg sync.WaitGroup
		wg.Go(p.sentinels.close)
		if t := p.now.Load(); t != nil {
			wg.Go(func() { t.d.Close() })
		}
		wg.Wait()
	})
}

// on calls f with the driver of the primary, and once more if that
// driver was replaced before anything was sent.
func (p *primary) on(ctx context.Context, f func(d *server.Driver) error) error {
	if err := p.life.CheckOpen(ctx); err != nil {
		return err
	}
	for n := 0; ; n++ {
		err := f(p.now.Load().d)
		p.noteError(err)
		if !errors.Is(err, server.ErrDropped) || n == server.MaxHops {
			return p.sentinels.lastAnswer.DuringElection(err)
		}
	}
}

// noteError makes sentinelSet ask the Sentinels if a request failed as it would
// at a server that is no longer the primary.
func (p *primary) noteError(err error) {
	if err == nil {
		return
	}
	switch driver.ClassOf(err) {
	case driver.Unknown, driver.Unavailable:
		p.sentinels.refresh()
	}
}

// votes returns how many Sentinels name each address.
func (p *primary) votes(ctx context.Context) map[string]int {
	votes, _ := p.sentinels.poll(ctx, len(p.hosts)) // no answer is no vote
	return votes
}
