package server

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// restartGuard keeps a server that lost its data from granting locks that may
// still be held. It costs nothing while the server runs. Joins are sent under a
// script name that only the examined server process knows: the script's text
// begins with the run id, so its SHA-1 differs for each process, and a process
// that started since answers NOSCRIPT. So the guard need not notice a lost
// connection, which a client library can hide, and no other client can load the
// script by chance.
//
// Only joins are guarded. Renewals find nothing where the data are gone, and a
// ticket that a release grants took its place by a join.
type restartGuard struct {
	GuardSettings
	known     atomic.Pointer[examination]
	examining chan struct{} // holds a value while a call examines the server
}

// examination is the result of examining a process of the server.
type examination struct {
	join *wire.Script
	run  string
	lost time.Time // the data were lost at this local time, or before
}

// GuardSettings are the settings of a restart guard.
type GuardSettings struct {
	Longest time.Duration // a server that lost its data refuses for this long, or for the joining ticket's TTL if that is longer
	Refusal error         // is wrapped by the error of a join that is refused
}

// newRestartGuard returns the restart guard of one server, or nil for no settings.
func newRestartGuard(s *GuardSettings) *restartGuard {
	if s == nil {
		return nil
	}
	return &restartGuard{GuardSettings: *s, examining: make(chan struct{}, 1)}
}

// choose puts the script that joins into the request of a ticket, or returns the
// reason why nothing may be granted now. If the request is to be sent in full,
// the server does not know the script that the request has.
func (g *restartGuard) choose(ctx context.Context, d *Driver, ttl time.Duration, r *wire.Request) error {
	if g == nil {
		return nil
	}
	k := g.known.Load()
	if k == nil || r.Full && k.join == r.Script {
		var err error
		if k, err = g.examine(ctx, d, r.Script); err != nil {
			return err
		}
	}
	if left := max(ttl, g.Longest) - time.Since(k.lost); left > 0 {
		return driver.NotReady(left, "%w: nothing is granted for another %v", g.Refusal, left.Round(time.Millisecond))
	}
	r.Script, r.Full = k.join, false
	return nil
}

// examine examines the server, unless another call has done so meanwhile.
func (g *restartGuard) examine(ctx context.Context, d *Driver, stale *wire.Script) (*examination, error) {
	select {
	case g.examining <- struct{}{}:
		defer func() { <-g.examining }()
	case <-ctx.Done():
		return nil, &driver.Error{Class: driver.NotDone, Err: context.Cause(ctx)}
	case <-d.Done:
		return nil, driver.ErrClosed
	}
	if k := g.known.Load(); k != nil && k.join != stale {
		return k, nil
	}
	k, err := onControl(ctx, d, g.examineProcess)
	if err != nil {
		return nil, err // a join of this call was not sent, or answered NOSCRIPT
	}
	if old := g.known.Load(); old != nil && old.run == k.run && old.lost.Before(k.lost) {
		k.lost = old.lost // each examination rounds differently
	}
	g.known.Store(k)
	return k, nil
}

// examineProcess examines the server, makes it remember the script, and
// examines it again: if both found one process, that process remembers the
// script.
func (g *restartGuard) examineProcess(c client.Conn) (*examination, error) {
	k, err := askProcess(c)
	if err != nil {
		return nil, err
	}
	if _, err := c.Do("SCRIPT", "LOAD", k.join.Text); err != nil {
		return nil, err
	}
	now, err := askProcess(c)
	if err != nil {
		return nil, err
	}
	if now.run != k.run {
		return nil, driver.Errorf(driver.NotDone, "%w during its examination", g.Refusal)
	}
	return k, nil
}

// longestLease is more than the longest lease.
const longestLease = 2 * 365 * 24 * time.Hour

func askProcess(c client.Conn) (*examination, error) {
	m, err := runOn(c, scriptsOf(false).Guard, []string{wire.GuardKey})
	if err != nil {
		return nil, err
	}
	list, err := m.Texts()
	answered := time.Now()
	if err != nil || len(list) != 3 {
		return nil, wire.Unreadable("no run id")
	}
	ms, err := strconv.ParseInt(list[1], 10, 64)
	if err != nil || ms < 0 || strings.ContainsAny(list[0], "\r\n") {
		return nil, wire.Unreadable("no time of the last loss")
	}
	// Older servers keep scripts in snapshots and logs, and so across
	// restarts.
	if !wire.AtLeast(list[2], 7, 0) {
		return nil, driver.Errorf(driver.Refused, "server is too old: version %s, the restart guard needs Redis 7.0", list[2])
	}
	// No lease lasts longer, so an earlier loss makes no difference.
	lost := answered.Add(-time.Duration(min(ms, int64(longestLease/time.Millisecond))) * time.Millisecond)
	return &examination{join: wire.ForRun(list[0], scriptsOf(false).Join), run: list[0], lost: lost}, nil
}

// check returns the finding about the guard: whether it is on, and the state of
// the server.
func (g *restartGuard) check(ctx context.Context, d *Driver) driver.Finding {
	f := driver.Finding{Topic: "restart guard", Detail: "off: a server that comes back without its data grants at once what may still be held"}
	if g == nil {
		return f
	}
	k, err := g.examine(ctx, d, g.stale())
	if err != nil {
		f.Level, f.Detail = driver.Problem, err.Error()
		f.Advice = "give the user the rights to INFO and SCRIPT LOAD, or turn restart_guard off"
		return f
	}
	f.Detail = fmt.Sprintf("on: the server has kept its data for at least %v", time.Since(k.lost).Round(time.Second))
	return f
}

// stale returns the script that was last known, so that again examines the
// server once more.
func (g *restartGuard) stale() *wire.Script {
	if k := g.known.Load(); k != nil {
		return k.join
	}
	return nil
}
