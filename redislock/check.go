package redislock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// Identity implements [driver.Identifier]: the server's run id, the database
// and the prefix. The run id changes with every restart.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	return d.whoIs(ctx, func(c link.Conn, run string) (string, error) {
		client, err := ask(c, "CLIENT", "INFO")
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("redis:%s/%s/%s", run, clientField(client, "db"), d.lines.prefix), nil
	})
}

// Server returns what is equal for two drivers exactly if they speak to the same
// server, whatever the database and the prefix: they fail together. It changes
// with every restart. It blocks for a round trip; errors are those of Identity.
func (d *Driver) Server(ctx context.Context) (string, error) {
	return d.whoIs(ctx, func(_ link.Conn, run string) (string, error) { return "redis:" + run, nil })
}

// whoIs asks for the server's run id, and calls f with it.
func (d *Driver) whoIs(ctx context.Context, f func(c link.Conn, run string) (string, error)) (string, error) {
	if err := d.before(ctx); err != nil {
		return "", err
	}
	return beside(ctx, d, func(c link.Conn) (string, error) {
		text, err := ask(c, "INFO", "server")
		if err != nil {
			return "", err
		}
		run := parseInfo(text)["run_id"]
		if run == "" {
			return "", unreadable("INFO without a run id")
		}
		return f(c, run)
	})
}

// ask returns an answer that is a text.
func ask(c link.Conn, words ...string) (string, error) {
	r, err := c.Do(words...)
	if err != nil {
		return "", err
	}
	text, err := r.Text()
	if err != nil {
		return "", unreadable("%s", words[0])
	}
	return text, nil
}

// parseInfo reads the answer to INFO.
func parseInfo(text string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// clientField reads a field of the answer to CLIENT INFO.
func clientField(text, name string) string {
	for _, f := range strings.Fields(text) {
		if v, ok := strings.CutPrefix(f, name+"="); ok {
			return v
		}
	}
	return "?"
}

// state is what a check asked the server.
type state struct {
	info    map[string]string
	infoErr error
	config  map[string]string // without what could not be read
	trip    time.Duration     // the quickest of several round trips
	skew    time.Duration     // the server's clock less ours, give or take trip/2
}

// Check implements [driver.Checker]. It takes and releases a lock of its own,
// and removes what that leaves behind.
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.before(ctx); err != nil {
		return nil, err
	}
	s, err := beside(ctx, d, examine)
	if err != nil {
		return nil, err
	}
	rights, l := checkLock(ctx, d, d.lines.make)
	fs := []driver.Finding{dropped(rights, d.drop(ctx, l)), d.checkPush(ctx, l)}
	return append(append(fs, s.findings()...), d.restartGuard(ctx)), nil
}

func examine(c link.Conn) (*state, error) {
	s := &state{config: make(map[string]string)}
	for range 5 {
		begun := time.Now()
		r, err := c.Do("TIME")
		trip := time.Since(begun)
		if err != nil {
			return nil, err
		}
		t, err := r.Texts()
		if err != nil || len(t) != 2 {
			return nil, unreadable("TIME")
		}
		sec, _ := strconv.ParseInt(t[0], 10, 64)
		usec, _ := strconv.ParseInt(t[1], 10, 64)
		if s.trip == 0 || trip < s.trip {
			s.trip = trip
			s.skew = time.Unix(sec, usec*1000).Sub(begun.Add(trip / 2))
		}
	}
	text, err := ask(c, "INFO")
	if broken(err) {
		return nil, err
	}
	s.info, s.infoErr = parseInfo(text), err
	for _, name := range []string{"appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag", "timeout"} {
		r, err := c.Do("CONFIG", "GET", name)
		if broken(err) {
			return nil, err
		}
		if m, failed := r.Pairs(); err == nil && failed == nil {
			if v, ok := m[name]; ok {
				s.config[name] = v
			}
		}
	}
	return s, nil
}

// checkLock goes through the life of a lock, as the user that we are. What it
// leaves is for the caller to drop.
func checkLock(ctx context.Context, d driver.Driver, line func(name string) *line) (driver.Finding, *line) {
	f := driver.Finding{Topic: "rights", Detail: "a lock was taken, waited for, renewed and released"}
	t := &driver.Ticket{ID: "check:" + rand.Text(), Name: "holdfast-check-" + rand.Text(), Units: 1, Limit: 1, TTL: 10 * time.Second}
	w := &driver.Ticket{ID: t.ID + "b", Name: t.Name, Units: 1, Limit: 1, TTL: t.TTL}
	err := func() error {
		p, err := d.Join(ctx, t, false)
		if err == nil && p.State != driver.Held {
			err = fmt.Errorf("a lock that nobody knows is %v", p.State)
		}
		if err != nil {
			return fmt.Errorf("take a lock: %w", err)
		}
		if _, err = d.Join(ctx, w, true); err != nil {
			return fmt.Errorf("wait for a lock: %w", err)
		}
		for _, op := range []struct {
			does string
			do   func(context.Context, []driver.Ref) ([]driver.Place, error)
			t    *driver.Ticket
		}{{"renew a lock", d.Renew, t}, {"renew a wait", d.Renew, w}, {"release a lock", d.Leave, t}, {"release a lock", d.Leave, w}} {
			ps, err := op.do(ctx, []driver.Ref{{Ticket: op.t, State: driver.Held}})
			if err == nil {
				err = ps[0].Err
			}
			if err != nil {
				return fmt.Errorf("%s: %w", op.does, err)
			}
		}
		return nil
	}()
	if err != nil {
		f.Level, f.Detail = driver.Problem, err.Error()
		f.Advice = "give the user the rights that the documentation of redislock lists"
	}
	return f, line(t.Name)
}

// drop removes what checkLock left.
func (d *Driver) drop(ctx context.Context, l *line) error {
	_, err := beside(ctx, d, func(c link.Conn) (int64, error) {
		r, err := c.Do(append([]string{"DEL"}, l.keys[:]...)...)
		if err != nil {
			return 0, err
		}
		return r.Int()
	})
	return err
}

// dropped is what checkLock found, and whether the rest could be removed.
func dropped(f driver.Finding, err error) driver.Finding {
	if err != nil && f.Level == driver.OK {
		f.Level, f.Detail = driver.Warning, "the keys of the check could not be removed: "+err.Error()
		f.Advice = "give the user the right to DEL"
	}
	return f
}

// checkPush publishes to itself.
func (d *Driver) checkPush(ctx context.Context, l *line) driver.Finding {
	f := driver.Finding{Topic: "push"}
	ctx, cancel := context.WithCancel(ctx)
	heard := make(chan struct{}, 1)
	channel := d.channel + "-check"
	if d.lines.sharded {
		channel = channelOf(channel, l.slot)
	}
	done := make(chan error, 1)
	if !d.begin(func() { done <- d.echo(ctx, channel, heard) }) {
		cancel()
		f.Level, f.Detail = driver.Problem, d.overErr().Error()
		return f
	}
	var err error
	select {
	case <-heard:
		f.Detail = "a message was published and heard"
	case err = <-done:
	case <-time.After(subscribeLimit):
		err = fmt.Errorf("a message was published and not heard within %v", subscribeLimit)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel()
	if err != nil {
		f.Level, f.Detail = driver.Problem, err.Error()
		f.Advice = "allow SUBSCRIBE and PUBLISH, in a cluster SSUBSCRIBE and SPUBLISH, on the channels holdfast_push:*; without them, a waiter learns of a release only when it asks"
	}
	return f
}

// echo subscribes to a channel, publishes there, and says when that was heard.
func (d *Driver) echo(ctx context.Context, channel string, heard chan<- struct{}) error {
	e := d.listen(func(string) {
		select {
		case heard <- struct{}{}:
		default:
		}
	}, func(string) {})
	defer e.Close()
	if err := e.Add(ctx, channel); err != nil {
		return fmt.Errorf("subscribe: %w", classify(err))
	}
	publish := "PUBLISH"
	if d.lines.sharded {
		publish = "SPUBLISH"
	}
	_, err := beside(ctx, d, func(c link.Conn) (link.Reply, error) { return c.Do(publish, channel, "check") })
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	select {
	case <-e.Lost():
	case <-ctx.Done():
	case <-d.done:
	}
	return nil
}
