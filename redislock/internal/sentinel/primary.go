// Package sentinel finds the server that Sentinels call the primary, and goes over to
// another server when they do.
package sentinel

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// Config says how to reach the Sentinels and the servers that they name.
type Config struct {
	Hosts  []string // the Sentinels
	Master string   // the name that the Sentinels have for the primary
	// Dial connects to a Sentinel.
	Dial func(ctx context.Context, host string) (*server.Driver, error)
	// Connect returns a new driver for a primary.
	Connect func(ctx context.Context, addr string) (*server.Driver, error)
}

// Primary is the server that Sentinels call the primary, whichever that is.
type Primary struct {
	Config
	Life      server.Life
	now       atomic.Pointer[term]
	sentinels sentinelSet
}

// term is the time of one primary in that role.
type term struct {
	d     *server.Driver
	addr  string
	ended chan struct{} // closed when another primary has followed
}

// Open finds the primary, and follows what the Sentinels say from then on.
func Open(ctx context.Context, c Config) (*Primary, error) {
	p := newPrimary(c)
	if err := p.sentinels.find(ctx, nil); err != nil {
		p.Close()
		return nil, err
	}
	p.Life.Begin(p.sentinels.follow)
	return p, nil
}

func newPrimary(c Config) *Primary {
	p := &Primary{Config: c}
	p.Life.Start()
	p.sentinels.init(p)
	return p
}

// follow makes d the driver of the present primary.
func (p *Primary) follow(d *server.Driver, addr string) {
	old := p.now.Swap(&term{d: d, addr: addr, ended: make(chan struct{})})
	if old != nil {
		close(old.ended)
		if !p.Life.Begin(func() { old.d.Close() }) {
			old.d.Close()
		}
	}
}

// Term returns the driver of the present primary, its address, and a channel that is
// closed when another primary has followed.
func (p *Primary) Term() (d *server.Driver, addr string, ended <-chan struct{}) {
	t := p.now.Load()
	return t.d, t.addr, t.ended
}

// Close ends the life.
func (p *Primary) Close() {
	p.Life.Finish(func() {
		var wg sync.WaitGroup
		wg.Go(p.sentinels.close)
		if t := p.now.Load(); t != nil {
			wg.Go(func() { t.d.Close() })
		}
		wg.Wait()
	})
}

// On calls f with the driver of the primary, and once more if that
// driver was replaced before anything was sent.
func (p *Primary) On(ctx context.Context, f func(d *server.Driver) error) error {
	if err := p.Life.CheckOpen(ctx); err != nil {
		return err
	}
	for n := 0; ; n++ {
		err := f(p.now.Load().d)
		p.NoteError(err)
		if !errors.Is(err, server.ErrDropped) || n == server.MaxHops {
			return p.sentinels.lastAnswer.DuringElection(err)
		}
	}
}

// NoteError makes sentinelSet ask the Sentinels if a request failed as it would
// at a server that is no longer the primary.
func (p *Primary) NoteError(err error) {
	if err == nil {
		return
	}
	switch driver.ClassOf(err) {
	case driver.Unknown, driver.Unavailable:
		p.sentinels.refresh()
	}
}

// Votes returns how many Sentinels name each address.
func (p *Primary) Votes(ctx context.Context) map[string]int {
	votes, _ := p.sentinels.poll(ctx, len(p.Hosts)) // no answer is no vote
	return votes
}
