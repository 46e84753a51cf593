package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// guardKey is the mark by which a server that kept its data is told from one
// that lost them, see guard.lua. It never expires.
const guardKey = "holdfast_guard"

var guardScript = newScript("guard")

// guard keeps a server that lost its data from granting what may still be held.
//
// It costs nothing while the server runs, because joins are sent under a name
// that only the process knows which was looked at: the script's text begins
// with the run id, so its SHA-1 is another one for each process, and a process
// that started since answers NOSCRIPT. This needs no notice of a connection
// that was lost, which a client library can hide, and no other client can load
// the script by chance.
//
// Only joins are guarded. Renewals find nothing where the data are gone, and
// those who may be granted by a release took their places by a join.
type guard struct {
	longest time.Duration // of the TTLs in use, at least; else that of who asks
	known   atomic.Pointer[guarded]
	look    chan struct{} // holds a value while somebody looks
}

// guarded is what is known of a process of the server.
type guarded struct {
	join *script
	run  string
	lost time.Time // not later than this by our clock, the data were lost
}

func newGuard(longest time.Duration) *guard {
	return &guard{longest: longest, look: make(chan struct{}, 1)}
}

// joinBy returns the script that joins, or why nothing may be granted now. Not
// nil, stale is a script that the server does not know.
func (d *Driver) joinBy(ctx context.Context, t *driver.Ticket, stale *script) (*script, error) {
	g := d.guard
	if g == nil {
		return d.scripts.join, nil
	}
	k := g.known.Load()
	if k == nil || k.join == stale {
		var err error
		if k, err = g.again(ctx, d, stale); err != nil {
			return nil, err
		}
	}
	if left := max(t.TTL, g.longest) - time.Since(k.lost); left > 0 {
		return nil, driver.Errorf(driver.Unavailable, "%w: nothing is granted for another %v", ErrRestarted, left.Round(time.Millisecond))
	}
	return k.join, nil
}

// ErrRestarted is in the errors of joins that the restart guard refuses: the
// server lost its data less than a TTL ago, and who held then may still work.
// Asking again after that time is all there is to do.
var ErrRestarted = errors.New("the server has restarted without its data")

// again looks at the server, unless another call has meanwhile.
func (g *guard) again(ctx context.Context, d *Driver, stale *script) (*guarded, error) {
	select {
	case g.look <- struct{}{}:
		defer func() { <-g.look }()
	case <-ctx.Done():
		return nil, &driver.Error{Class: driver.NotDone, Err: context.Cause(ctx)}
	case <-d.done:
		return nil, driver.ErrClosed
	}
	if k := g.known.Load(); k != nil && k.join != stale {
		return k, nil
	}
	k, err := beside(ctx, d, examineGuard)
	if err != nil {
		return nil, err // a join of this call was not sent, or answered NOSCRIPT
	}
	if old := g.known.Load(); old != nil && old.run == k.run && old.lost.Before(k.lost) {
		k.lost = old.lost // each look has its own rounding
	}
	g.known.Store(k)
	return k, nil
}

// examineGuard looks, makes the server remember the script, and looks again:
// that both looks found one process says that it was this one that remembers.
func examineGuard(c link.Conn) (*guarded, error) {
	k, err := askGuard(c)
	if err != nil {
		return nil, err
	}
	if _, err := c.Do("SCRIPT", "LOAD", k.join.text); err != nil {
		return nil, err
	}
	now, err := askGuard(c)
	if err != nil {
		return nil, err
	}
	if now.run != k.run {
		return nil, driver.Errorf(driver.NotDone, "%w, while it was looked at", ErrRestarted)
	}
	return k, nil
}

func askGuard(c link.Conn) (*guarded, error) {
	m, err := runOn(c, guardScript, []string{guardKey})
	if err != nil {
		return nil, err
	}
	list, err := m.Texts()
	answered := time.Now()
	if err != nil || len(list) != 3 {
		return nil, unreadable("no run id")
	}
	ms, err := strconv.ParseInt(list[1], 10, 64)
	if err != nil || ms < 0 || strings.ContainsAny(list[0], "\r\n") {
		return nil, unreadable("no time of the last loss")
	}
	// Older ones keep scripts in snapshots and logs, and so across restarts.
	if !atLeast(list[2], 7, 0) {
		return nil, driver.Errorf(driver.Refused, "the server is of version %s, and the restart guard needs Redis 7.0 or later", list[2])
	}
	// No loss is longer ago than any lease lasts.
	lost := answered.Add(-time.Duration(min(ms, int64(2*MaxTTL/time.Millisecond))) * time.Millisecond)
	return &guarded{join: joinScript.under(list[0]), run: list[0], lost: lost}, nil
}

// under returns the same script with a name that depends on the run id.
func (s *script) under(run string) *script {
	return namedScript("-- " + run + "\n" + s.text)
}

// parseGuard reads the URL's option: on, off, or the longest TTL in use.
func parseGuard(text string) (on bool, longest time.Duration, err error) {
	switch text {
	case "on":
		return true, 0, nil
	case "off":
		return false, 0, nil
	}
	longest, err = time.ParseDuration(text)
	if err != nil || longest < MinTTL || longest > MaxTTL {
		return false, 0, errors.New("option restart_guard is neither on nor off, nor the longest TTL in use, such as 30s")
	}
	return true, longest, nil
}

// restartGuard says whether the guard is on, and what it sees.
func (d *Driver) restartGuard(ctx context.Context) driver.Finding {
	f := driver.Finding{Topic: "restart guard", Detail: "off: a server that comes back without its data grants at once what may still be held"}
	if d.guard == nil {
		return f
	}
	k, err := d.guard.again(ctx, d, d.guard.stale())
	if err != nil {
		f.Level, f.Detail = driver.Problem, err.Error()
		f.Advice = "give the user the rights to INFO and SCRIPT LOAD, or turn restart_guard off"
		return f
	}
	f.Detail = fmt.Sprintf("on: the server has its data since %v at least", time.Since(k.lost).Round(time.Second))
	return f
}

// stale is the script known last, so that again looks once more.
func (g *guard) stale() *script {
	if k := g.known.Load(); k != nil {
		return k.join
	}
	return nil
}
