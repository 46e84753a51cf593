package zklock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	s, err := d.any(ctx)
	if err != nil {
		return nil, err
	}
	var fs []driver.Finding
	if e := d.do(ctx, func() { fs, err = s.check() }); e != nil {
		return nil, e
	}
	return fs, err
}

func (s *session) check() ([]driver.Finding, error) {
	begun := time.Now()
	if err := s.sync(); err != nil {
		return nil, err
	}
	trip := time.Since(begun)
	fs := []driver.Finding{s.d.checkTrip(trip), s.d.checkTTL(), s.checkServer()}
	acl, _, err := s.conn.GetACL(s.d.syncPath())
	if err == nil {
		fs = append(fs, checkACL(acl))
	}
	return fs, nil
}

func (d *Driver) checkTrip(trip time.Duration) driver.Finding {
	f := driver.Finding{Topic: "round trip", Detail: fmt.Sprintf("the leader answers after %v", trip.Round(10*time.Microsecond))}
	if trip > d.tick/2 {
		f.Level = driver.Warning
		f.Advice = "the servers are slow for their tickTime: sessions may expire that should not"
	}
	return f
}

func (d *Driver) checkTTL() driver.Finding {
	return driver.Finding{Topic: "TTL", Detail: fmt.Sprintf("TTLs from %v to %v are granted; a dead holder may be in the way for up to %v longer than its TTL and 4 %%",
		d.traits.MinTTL, d.traits.MaxTTL, d.traits.Granularity)}
}

// checkServer asks the server with a command that every version answers.
func (s *session) checkServer() driver.Finding {
	f := driver.Finding{Topic: "server"}
	if s.users || s.d.opts.Dial != nil {
		f.Detail = "connected to " + s.conn.Server()
		return f
	}
	stats, ok := zk.FLWSrvr([]string{s.conn.Server()}, 2*time.Second)
	if !ok || len(stats) != 1 || stats[0] == nil || stats[0].Error != nil {
		f.Detail = "connected to " + s.conn.Server() + ", which does not answer the command srvr"
		return f
	}
	f.Detail = fmt.Sprintf("connected to %s, version %s, %v", s.conn.Server(), stats[0].Version, stats[0].Mode)
	if stats[0].Mode == zk.ModeStandalone {
		f.Level = driver.Warning
		f.Advice = "one server alone: nobody locks while it is down; use an ensemble of three or five"
	}
	return f
}

func checkACL(acl []zk.ACL) driver.Finding {
	var who []string
	open := false
	for _, a := range acl {
		id := a.ID
		if a.Scheme == "digest" {
			id, _, _ = strings.Cut(id, ":")
		}
		who = append(who, a.Scheme+":"+id)
		open = open || a.Scheme == "world" && a.Perms&(zk.PermCreate|zk.PermDelete|zk.PermWrite) != 0
	}
	f := driver.Finding{Topic: "access", Detail: "lines are open to " + strings.Join(who, ", ")}
	if open {
		f.Level = driver.Warning
		f.Advice = "anybody who reaches the server can take and break locks: give the URL a user, or the path an ACL"
	}
	return f
}
