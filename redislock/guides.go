package redislock

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// guides are the Sentinels, and how the primary is found by them.
type guides struct {
	s    *Sentinel
	kick chan struct{} // holds a value when there is a doubt

	mu    sync.Mutex
	known map[string]*Driver // by address; speaks to a Sentinel
	shut  bool
}

// switchChannel is where Sentinels tell of a new primary.
const switchChannel = "+switch-master"

func (g *guides) init(s *Sentinel) {
	g.s, g.kick, g.known = s, make(chan struct{}, 1), make(map[string]*Driver)
}

// doubt makes the guides be asked, in the background.
func (g *guides) doubt() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// driver returns what speaks to a Sentinel. It blocks while it connects.
func (g *guides) driver(ctx context.Context, host string) (d *Driver, err error) {
	g.mu.Lock()
	d = g.known[host]
	g.mu.Unlock()
	if d != nil {
		return d, nil
	}
	life, end := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, end)()
	defer func() {
		if err != nil {
			end()
		}
	}()
	client, watch, err := g.s.at.guide.to(host).connect(life)
	if err != nil {
		return nil, err
	}
	d = unchecked(setup{client: client, alone: watch, end: end, replaceable: true})
	if ctx.Err() != nil { // which has ended the connections
		d.Close()
		return nil, &driver.Error{Class: driver.Unavailable, Err: context.Cause(ctx)}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if other := g.known[host]; other != nil || g.shut {
		if !g.s.begin(func() { d.Close() }) {
			end()
		}
		if g.shut {
			return nil, driver.ErrClosed
		}
		return other, nil
	}
	g.known[host] = d
	return d, nil
}

// forget closes what speaks to a Sentinel that does not answer.
func (g *guides) forget(host string, d *Driver) {
	g.mu.Lock()
	if g.known[host] == d {
		delete(g.known, host)
	}
	g.mu.Unlock()
	g.s.begin(func() { d.Close() })
}

func (g *guides) close() {
	g.mu.Lock()
	known := g.known
	g.known, g.shut = nil, true
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, d := range known {
		wg.Go(func() { d.Close() })
	}
	wg.Wait()
}

// ask asks one Sentinel.
func (g *guides) ask(ctx context.Context, host string) (string, error) {
	d, err := g.driver(ctx, host)
	if err != nil {
		return "", err
	}
	r, err := beside(ctx, d, func(c link.Conn) (link.Reply, error) {
		return c.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", g.s.at.master)
	})
	if err != nil {
		if broken(err) {
			g.forget(host, d)
		}
		return "", err
	}
	parts, err := r.Texts()
	if err != nil || len(parts) != 2 {
		return "", driver.Errorf(driver.Refused, "the Sentinels know no primary of the name %s", shorten(g.s.at.master))
	}
	return net.JoinHostPort(parts[0], parts[1]), nil
}

// poll asks all, and returns how many name which address, and an error if
// nobody answered. It ends early when most agree.
func (g *guides) poll(ctx context.Context) (map[string]int, error) {
	type vote struct {
		addr string
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hosts := g.s.at.hosts
	ch := make(chan vote, len(hosts))
	for _, host := range hosts {
		if !g.s.begin(func() {
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
		if votes[v.addr]++; votes[v.addr] > len(hosts)/2 {
			break
		}
	}
	if len(votes) > 0 {
		err = nil
	}
	return votes, err
}

// votes asks all for as long as ctx allows.
func (g *guides) votes(ctx context.Context) map[string]int {
	var mu sync.Mutex
	votes := make(map[string]int)
	var wg sync.WaitGroup
	for _, host := range g.s.at.hosts {
		wg.Go(func() {
			if addr, err := g.ask(ctx, host); err == nil {
				mu.Lock()
				votes[addr]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return votes
}

// find goes over to the primary that most Sentinels name and that calls itself
// so. One that is in use stays as long as it does. named is heard to be new.
func (g *guides) find(ctx context.Context, named []string) error {
	limited, cancel := context.WithTimeout(ctx, rumour)
	votes, err := g.poll(limited)
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
		now := g.s.now.Load()
		limited, cancel := context.WithTimeout(ctx, openLimit)
		if now != nil && now.addr == addr {
			soon, stop := context.WithTimeout(limited, rumour)
			err = now.d.greet(soon)
			stop()
		} else {
			var d *Driver
			if d, err = g.s.connect(limited, addr); err == nil {
				g.s.follow(d, addr)
			}
		}
		cancel()
		if err == nil || driver.ClassOf(err) == driver.Refused {
			return err
		}
	}
	return err
}

// follow listens to a Sentinel for as long as the driver lives, and looks for
// the primary when there is a doubt.
func (g *guides) follow() {
	for at := 0; !g.s.over(); at++ {
		g.listen(g.s.at.hosts[at%len(g.s.at.hosts)])
		select {
		case <-g.s.done:
		case <-time.After(lull):
		}
	}
}

// listen listens to one Sentinel until it is lost.
func (g *guides) listen(host string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	if !g.s.begin(func() {
		select {
		case <-g.s.done:
			cancel()
		case <-stop:
		}
	}) {
		return
	}
	look := func(named ...string) {
		limited, cancel := context.WithTimeout(ctx, 2*openLimit)
		_ = g.find(limited, named) // whatever fails now is doubted again
		cancel()
	}
	limited, stopDial := context.WithTimeout(ctx, rumour)
	d, err := g.driver(limited, host)
	stopDial()
	news := make(chan string, 16)
	var lost <-chan struct{}
	if err == nil {
		e := d.listen(func(message string) {
			if addr, ok := successor(message, g.s.at.master); ok {
				select {
				case news <- addr:
				default:
					g.doubt()
				}
			}
		}, func(string) {})
		defer e.Close()
		limited, cancel := context.WithTimeout(ctx, rumour)
		if err = e.Add(limited, switchChannel); err == nil {
			lost = e.Lost()
		}
		cancel()
	}
	look() // what was told before
	if err != nil {
		return
	}
	for {
		select {
		case addr := <-news:
			look(addr)
		case <-g.kick:
			look()
			select { // doubts come with every request
			case <-g.s.done:
			case <-time.After(lull):
			}
		case <-lost:
			return
		case <-g.s.done:
			return
		}
	}
}

// successor reads "<name> <old host> <old port> <new host> <new port>".
func successor(message, master string) (addr string, ok bool) {
	rest, ok := strings.CutPrefix(message, master+" ")
	f := strings.Fields(rest)
	if !ok || len(f) != 4 {
		return "", false
	}
	return net.JoinHostPort(f[2], f[3]), true
}
