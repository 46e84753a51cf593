package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Identity implements [driver.Identifier].
func (d *Driver) Identity(ctx context.Context) (string, error) {
	return withRunID(ctx, d, func(c client.Conn, run string) (string, error) {
		client, err := ask(c, "CLIENT", "INFO")
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("redis:%s/%s/%s", run, wire.ClientField(client, "db"), d.requests.Prefix), nil
	})
}

// Server returns a text that distinguishes the server's processes.
func (d *Driver) Server(ctx context.Context) (string, error) {
	return withRunID(ctx, d, func(_ client.Conn, run string) (string, error) { return "redis:" + run, nil })
}

// withRunID asks for the server's run id, and calls f with that id.
func withRunID(ctx context.Context, d *Driver, f func(c client.Conn, run string) (string, error)) (string, error) {
	if err := d.CheckOpen(ctx); err != nil {
		return "", err
	}
	return onControl(ctx, d, func(c client.Conn) (string, error) {
		text, err := ask(c, "INFO", "server")
		if err != nil {
			return "", err
		}
		run := wire.ParseInfo(text)["run_id"]
		if run == "" {
			return "", wire.Unreadable("INFO without a run id")
		}
		return f(c, run)
	})
}

// ask sends a command and returns its answer, a text.
func ask(c client.Conn, words ...string) (string, error) {
	r, err := c.Do(words...)
	if err != nil {
		return "", err
	}
	text, err := r.Text()
	if err != nil {
		return "", wire.Unreadable("%s", words[0])
	}
	return text, nil
}

// serverState is the set of answers that a check got from the server.
type serverState struct {
	info    map[string]string
	infoErr error
	config  map[string]string // without the settings that could not be read
	trip    time.Duration     // the shortest of several round trips
	skew    time.Duration     // the server's clock minus the client's, give or take trip/2
}

// Check implements [driver.Checker].
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.CheckOpen(ctx); err != nil {
		return nil, err
	}
	t := TryLock(ctx, d, d.requests.Make)
	if err := t.CheckRights(ctx, d); err != nil {
		return nil, err
	}
	fs := []driver.Finding{t.Finding(t.DeleteKeys(ctx, d)), t.CheckPush(ctx, d)}
	about, err := d.Findings(ctx)
	if err != nil && wire.DeniedOf(err) == "" { // the finding about rights covers it
		return nil, err
	}
	return append(append(fs, about...), d.restartGuard.check(ctx, d)), nil
}

// Findings judges what the server reports about itself.
func (d *Driver) Findings(ctx context.Context) ([]driver.Finding, error) {
	s, err := onControl(ctx, d, examine)
	if err != nil {
		return nil, err
	}
	return s.findings(), nil
}

func examine(c client.Conn) (*serverState, error) {
	s := &serverState{config: make(map[string]string)}
	for range 5 {
		begun := time.Now()
		r, err := c.Do("TIME")
		trip := time.Since(begun)
		if err != nil {
			return nil, err
		}
		t, err := r.Texts()
		if err != nil || len(t) != 2 {
			return nil, wire.Unreadable("TIME")
		}
		sec, _ := strconv.ParseInt(t[0], 10, 64)
		usec, _ := strconv.ParseInt(t[1], 10, 64)
		if s.trip == 0 || trip < s.trip {
			s.trip = trip
			s.skew = time.Unix(sec, usec*1000).Sub(begun.Add(trip / 2))
		}
	}
	text, err := ask(c, "INFO")
	if Broken(err) {
		return nil, err
	}
	s.info, s.infoErr = wire.ParseInfo(text), err
	for _, name := range []string{"appendfsync", "save", "min-replicas-to-write", "min-replicas-max-lag", "timeout"} {
		r, err := c.Do("CONFIG", "GET", name)
		if Broken(err) {
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

// trial is a lock that nobody else uses, which a check took, and the finding
// about the rights that this needed.
type trial struct {
	*wire.QueueKeys
	rights driver.Finding
}

// locker is the part of [driver.Driver] that a trial needs.
type locker interface {
	Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error)
	Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error)
	Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error)
}

// TryLock takes a lock through its life, with the driver's own user. The caller
// removes the keys that are left.
func TryLock(ctx context.Context, d locker, keysOf func(name string) *wire.QueueKeys) *trial {
	f := driver.Finding{Topic: "rights", Detail: "a lock was taken, waited for, renewed and released"}
	t := &driver.Ticket{ID: "check:" + rand.Text(), Name: "holdfast-check-" + rand.Text(), Units: 1, Limit: 1, TTL: 10 * time.Second}
	w := &driver.Ticket{ID: t.ID + "b", Name: t.Name, Units: 1, Limit: 1, TTL: t.TTL}
	err := func() error {
		p, err := d.Join(ctx, t, false)
		if err == nil && p.State != driver.Held {
			err = fmt.Errorf("a new lock is %v", p.State)
		}
		if err != nil {
			return fmt.Errorf("take a lock: %w", err)
		}
		if _, err = d.Join(ctx, w, true); err != nil {
			return fmt.Errorf("wait for a lock: %w", err)
		}
		for _, op := range []struct {
			does string
			do   func(context.Context, []driver.Ref) ([]driver.Status, error)
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
	return &trial{keysOf(t.Name), f}
}

// DeleteKeys removes the keys that TryLock left.
func (t *trial) DeleteKeys(ctx context.Context, d *Driver) error {
	_, err := onControl(ctx, d, func(c client.Conn) (int64, error) {
		r, err := c.Do(append([]string{"DEL"}, t.Keys[:wire.OwnKeys]...)...)
		if err != nil {
			return 0, err
		}
		return r.Int()
	})
	return err
}

// Finding returns the finding about rights, made a warning if the keys could
// not be removed.
func (t *trial) Finding(err error) driver.Finding {
	f := t.rights
	if err != nil && f.Level == driver.OK {
		f.Level, f.Detail = driver.Warning, "the keys of the check could not be removed: "+err.Error()
		f.Advice = "give the user the right to DEL"
	}
	return f
}

// CheckPush publishes a message to its own subscription.
func (t *trial) CheckPush(ctx context.Context, d *Driver) driver.Finding {
	f := driver.Finding{Topic: "push"}
	ctx, cancel := context.WithCancel(ctx)
	received := make(chan struct{}, 1)
	channel := d.Channel + "-check"
	if d.requests.Sharded {
		channel = wire.ChannelOf(channel, t.Slot)
	}
	done := make(chan error, 1)
	if !d.Begin(func() { done <- echo(ctx, d, channel, received) }) {
		cancel()
		f.Level, f.Detail = driver.Problem, d.overErr().Error()
		return f
	}
	var err error
	select {
	case <-received:
		f.Detail = "a message was published and received"
	case err = <-done:
	case <-time.After(subscribeLimit):
		err = fmt.Errorf("a message was published and not received within %v", subscribeLimit)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	cancel()
	if err != nil {
		f.Level, f.Detail = driver.Problem, err.Error()
		f.Advice = "give the user +subscribe +publish &holdfast_push:*, in a cluster +ssubscribe +spublish; without them, a waiter learns of a release only when it polls"
	}
	return f
}

// echo subscribes to a channel, publishes there, and signals on received when
// the message arrives.
func echo(ctx context.Context, d *Driver, channel string, received chan<- struct{}) error {
	e := d.Listen(func(string) {
		select {
		case received <- struct{}{}:
		default:
		}
	}, func(string) {})
	defer e.Close()
	if err := e.Add(ctx, channel); err != nil {
		return fmt.Errorf("subscribe: %w", Classify(err))
	}
	publish := "PUBLISH"
	if d.requests.Sharded {
		publish = "SPUBLISH"
	}
	_, err := d.Do(ctx, publish, channel, "check")
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	select {
	case <-e.Lost():
	case <-ctx.Done():
	case <-d.Done:
	}
	return nil
}
