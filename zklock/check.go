package zklock

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	return request(ctx, d, func(s *session) ([]driver.Finding, error) { return tree{s}.check() })
}

func (t tree) check() ([]driver.Finding, error) {
	begun := time.Now()
	if err := t.s.sync(); err != nil {
		return nil, err
	}
	trip := time.Since(begun)
	fs := []driver.Finding{t.checkTrip(trip), t.checkTTL(), t.checkServer()}
	acl, _, err := t.s.conn.GetACL(t.s.d.syncPath())
	if err == nil {
		fs = append(fs, checkACL(acl))
	}
	for _, f := range []*driver.Finding{t.checkRights(), t.checkMarks()} {
		if f != nil {
			fs = append(fs, *f)
		}
	}
	return fs, nil
}

func (t tree) checkTrip(trip time.Duration) driver.Finding {
	f := driver.Finding{Topic: "round trip", Detail: fmt.Sprintf("the leader answers after %v", trip.Round(10*time.Microsecond))}
	if trip > t.s.d.tick/2 {
		f.Level = driver.Warning
		f.Advice = "the servers are slow for their tickTime: sessions may expire that should not"
	}
	return f
}

func (t tree) checkTTL() driver.Finding {
	return driver.Finding{Topic: "TTL", Detail: fmt.Sprintf("TTLs from %v to %v are granted; a dead holder may be in the way for up to %v longer than its TTL and 4 %%",
		t.s.d.traits.MinTTL, t.s.d.traits.MaxTTL, t.s.d.traits.Granularity)}
}

// checkServer asks the server for its version and mode, with a command that
// every version answers.
func (t tree) checkServer() driver.Finding {
	f := driver.Finding{Topic: "server"}
	if t.s.users || t.s.d.opts.Dial != nil {
		f.Detail = "connected to " + t.s.conn.Server()
		return f
	}
	version, mode, err := srvr(t.s.conn.Server(), 2*time.Second)
	if err != nil {
		f.Detail = fmt.Sprintf("connected to %s, which does not answer the command srvr: %v", t.s.conn.Server(), err)
		return f
	}
	f.Detail = fmt.Sprintf("connected to %s, version %s, %s", t.s.conn.Server(), version, mode)
	if mode == "standalone" {
		f.Level = driver.Warning
		f.Advice = "one server alone: nobody locks while it is down; use an ensemble of three or five"
	}
	return f
}

// srvr asks a server for its version and mode. The client library's own call
// fails to parse the date, which newer servers write differently.
func srvr(address string, limit time.Duration) (version, mode string, err error) {
	conn, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return "", "", err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 1<<16))
	if err != nil {
		return "", "", err
	}
	for queue := range strings.Lines(string(answer)) {
		key, value, _ := strings.Cut(strings.TrimSpace(queue), ": ")
		switch key {
		case "Zookeeper version":
			version, _, _ = strings.Cut(value, ",")
		case "Mode":
			mode = value
		}
	}
	if mode == "" { // perhaps not in 4lw.commands.whitelist
		first, _, _ := strings.Cut(strings.TrimSpace(string(answer)), "\n")
		return "", "", fmt.Errorf("it says %q", first)
	}
	return version, mode, nil
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
