package sentinel

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
	"github.com/holdfast-go/holdfast/internal/storeurl"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// sentinelSet is the set of Sentinels, by which the primary is found.
//
// Under mu, only the mutex of the primary's life is taken.
type sentinelSet struct {
	p    *Primary
	kick chan struct{} // holds a value when the primary is in doubt

	lastAnswer server.LastAnswer // the time of a Sentinel's last answer

	mu      sync.Mutex
	drivers map[string]*server.Driver // drivers for Sentinels, by address
	closed  bool
}

// switchChannel is the channel on which Sentinels announce a new primary.
const switchChannel = "+switch-master"

func (g *sentinelSet) init(p *Primary) {
	g.p, g.kick, g.drivers = p, make(chan struct{}, 1), make(map[string]*server.Driver)
}

// refresh makes follow ask the Sentinels, in the background.
func (g *sentinelSet) refresh() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// driver returns the driver for a Sentinel. It blocks while it connects.
func (g *sentinelSet) driver(ctx context.Context, host string) (d *server.Driver, err error) {
	g.mu.Lock()
	d = g.drivers[host]
	g.mu.Unlock()
	if d != nil {
		return d, nil
	}
	d, err = g.p.Dial(ctx, host)
	if err != nil {
		return nil, ofSentinel(host, err)
	}
	g.mu.Lock()
	other, closed := g.drivers[host], g.closed
	if other == nil && !closed {
		g.drivers[host] = d
	}
	g.mu.Unlock()
	switch {
	case closed:
		d.Close()
		return nil, driver.ErrClosed
	case other != nil:
		d.Close()
		return other, nil
	}
	return d, nil
}

// ofSentinel adds to an error the name of the option that has the password of
// the Sentinels, which differs from that of the servers.
func ofSentinel(host string, err error) error {
	switch word, _, _ := strings.Cut(wire.AnswerOf(err), " "); word {
	case "NOAUTH":
		return driver.Errorf(driver.Refused, "the Sentinel %s wants a password: give it with the option sentinel_password: %s", host, wire.AnswerOf(err))
	case "WRONGPASS":
		return driver.Errorf(driver.Refused, "the Sentinel %s knows no such user with this sentinel_password: %s", host, wire.AnswerOf(err))
	}
	return err
}

// forget closes the driver of a Sentinel that does not answer.
func (g *sentinelSet) forget(host string, d *server.Driver) {
	g.mu.Lock()
	if g.drivers[host] == d {
		delete(g.drivers, host)
	}
	g.mu.Unlock()
	g.p.Life.Begin(func() { d.Close() })
}

func (g *sentinelSet) close() {
	g.mu.Lock()
	known := g.drivers
	g.drivers, g.closed = nil, true
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, d := range known {
		wg.Go(func() { d.Close() })
	}
	wg.Wait()
}

// ask returns the primary's address, as one Sentinel gives it.
func (g *sentinelSet) ask(ctx context.Context, host string) (string, error) {
	d, err := g.driver(ctx, host)
	if err != nil {
		return "", err
	}
	r, err := d.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", g.p.Master)
	if err != nil {
		if server.Broken(err) {
			g.forget(host, d)
		}
		if strings.Contains(strings.ToLower(wire.AnswerOf(err)), "unknown command") {
			err = driver.Errorf(driver.Refused, "%s is no Sentinel; the URL of a server begins with redis: %w", host, err)
		}
		return "", err
	}
	hostPort, err := r.Texts()
	if err != nil || len(hostPort) != 2 {
		return "", driver.Errorf(driver.Refused, "the Sentinels know no primary of the name %s", storeurl.Shorten(g.p.Master))
	}
	g.lastAnswer.Note()
	return net.JoinHostPort(hostPort[0], hostPort[1]), nil
}

// poll asks all Sentinels and returns the number of votes for each address, or
// an error if no Sentinel answered. It ends early when more than enough agree.
func (g *sentinelSet) poll(ctx context.Context, enough int) (map[string]int, error) {
	type vote struct {
		addr string
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hosts := g.p.Hosts
	ch := make(chan vote, len(hosts))
	for _, host := range hosts {
		if !g.p.Life.Begin(func() {
			addr, err := g.ask(ctx, host)
			ch <- vote{addr, err}
		}) {
			return nil, driver.ErrClosed
		}
	}
	votes := make(map[string]int)
	var err error
	for range hosts {
		v := <-ch
		if v.err != nil {
			err = v.err
			continue
		}
		if votes[v.addr]++; votes[v.addr] > enough {
			break
		}
	}
	if len(votes) > 0 {
		err = nil
	}
	return votes, err
}

// find goes over to the primary that most Sentinels name, if that server
// confirms its role. A primary that is in use stays as long as it confirms its
// role. The addresses in named, which a Sentinel has announced, are tried
// first.
func (g *sentinelSet) find(ctx context.Context, named []string) error {
	limited, cancel := context.WithTimeout(ctx, server.DiscoveryTimeout)
	votes, err := g.poll(limited, len(g.p.Hosts)/2)
	cancel()
	if err != nil && len(named) == 0 {
		return driver.Wrap(driver.Unavailable, err)
	}
	order := slices.Clone(named)
	for addr := range votes {
		if !slices.Contains(order, addr) {
			order = append(order, addr)
		}
	}
	slices.SortStableFunc(order[len(named):], func(a, b string) int { return votes[b] - votes[a] })
	for _, addr := range order {
		now := g.p.now.Load()
		limited, cancel := context.WithTimeout(ctx, server.OpenLimit)
		if now != nil && now.addr == addr {
			soon, stop := context.WithTimeout(limited, server.DiscoveryTimeout)
			err = now.d.Greet(soon)
			stop()
		} else {
			var d *server.Driver
			if d, err = g.p.Connect(limited, addr); err == nil {
				g.p.follow(d, addr)
			}
		}
		cancel()
		if err == nil || driver.ClassOf(err) == driver.Refused {
			return err
		}
	}
	return err
}

// follow listens to one Sentinel after another for as long as the driver
// lives, and looks for the primary when it is in doubt.
func (g *sentinelSet) follow() {
	for at := 0; !g.p.Life.Over(); at++ {
		g.listen(g.p.Hosts[at%len(g.p.Hosts)])
		g.p.Life.Sleep(context.Background(), server.DiscoveryBackoff)
	}
}

// listen listens to one Sentinel until the connection is lost.
func (g *sentinelSet) listen(host string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	if !g.p.Life.Begin(func() {
		select {
		case <-g.p.Life.Done:
			cancel()
		case <-stop:
		}
	}) {
		return
	}
	// A client that only waits sends nothing that would raise the next doubt, so a
	// search that failed is repeated.
	var again <-chan time.Time
	pause := backoff.Backoff{First: server.DiscoveryBackoff, Last: server.SubscribeRetryMax}
	find := func(named ...string) {
		limited, cancel := context.WithTimeout(ctx, 2*server.OpenLimit)
		defer cancel()
		if again = nil; g.find(limited, named) != nil {
			again = time.After(pause.Next())
		} else {
			pause.Reset()
		}
	}
	limited, stopDial := context.WithTimeout(ctx, server.DiscoveryTimeout)
	d, err := g.driver(limited, host)
	stopDial()
	news := make(chan string, 16)
	var lost <-chan struct{}
	if err == nil {
		e := d.Listen(func(message string) {
			if addr, ok := successor(message, g.p.Master); ok {
				select {
				case news <- addr:
				default:
					g.refresh()
				}
			}
		}, func(string) {})
		defer e.Close()
		limited, cancel := context.WithTimeout(ctx, server.DiscoveryTimeout)
		if err = e.Add(limited, switchChannel); err == nil {
			lost = e.Lost()
		}
		cancel()
	}
	find() // a switch before the subscription was not announced here
	if err != nil {
		return
	}
	for {
		select {
		case addr := <-news:
			find(addr)
		case <-again:
			find()
		case <-g.kick:
			find()
			g.p.Life.Sleep(ctx, server.DiscoveryBackoff) // every failed request raises a doubt
		case <-lost:
			return
		case <-g.p.Life.Done:
			return
		}
	}
}

// successor returns the new address in a message of the form "<name> <old
// host> <old port> <new host> <new port>".
func successor(message, master string) (addr string, ok bool) {
	rest, ok := strings.CutPrefix(message, master+" ")
	f := strings.Fields(rest)
	if !ok || len(f) != 4 {
		return "", false
	}
	return net.JoinHostPort(f[2], f[3]), true
}
