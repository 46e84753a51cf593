package server

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Inspect implements the method of [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := d.CheckOpen(ctx); err != nil {
		return driver.Queue{}, err
	}
	m, err := runOnControl(ctx, d, d.requests.Scripts.Inspect, d.requests.Make(name))
	if err != nil {
		return driver.Queue{}, err
	}
	s, err := wire.ReadSnapshot(&m)
	if err != nil {
		return driver.Queue{}, err
	}
	return s.Queue(name)
}

// runOnControl runs a script on one queue, on the driver's own connection.
func runOnControl(ctx context.Context, d *Driver, s *wire.Script, l *wire.QueueKeys, args ...string) (wire.Reply, error) {
	return onControl(ctx, d, func(c client.Conn) (wire.Reply, error) {
		return runOn(c, s, l.All(), args...)
	})
}

// Names implements the method of [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.CheckOpen(ctx); err != nil {
			yield("", err)
			return
		}
		w := nameWalk{d: d, ctx: ctx, prefix: prefix, seen: make(map[string]bool), yield: yield}
		start := d.requests.Prefix + prefix
		ok := w.walk(wire.GlobEscape(start)+"*", "hash", func(key string) (string, bool) { return wire.NameOf(d.requests.Prefix, key) })
		if escaped := wire.HelperNames[wire.KeyHolders]; ok && (strings.HasPrefix(start, wire.Reserved) || strings.HasPrefix(wire.Reserved, start)) {
			ok = w.walk(wire.GlobEscape(escaped)+"*", "hash", func(key string) (string, bool) { return wire.NameOf(d.requests.Prefix, key) })
		}
		if ok {
			w.walk(wire.GlobEscape(wire.HelperNames[wire.KeyWaiters])+"*", "list", func(key string) (string, bool) {
				k, ok := wire.OutOfSlot(strings.TrimPrefix(key, wire.HelperNames[wire.KeyWaiters]))
				if !ok {
					return "", false
				}
				return wire.NameOf(d.requests.Prefix, k)
			})
		}
	}
}

// nameWalk is one use of Names.
type nameWalk struct {
	d      *Driver
	ctx    context.Context
	prefix string
	seen   map[string]bool
	yield  func(string, error) bool
}

// walk goes through the keys of a type that match, and returns false if the
// walk is to end.
func (w *nameWalk) walk(pattern, kind string, name func(key string) (string, bool)) bool {
	for cursor := "0"; ; {
		page, err := w.page(cursor, pattern, kind, name)
		if err != nil {
			w.yield("", err)
			return false
		}
		for _, n := range page.names {
			if !w.yield(n, nil) {
				return false
			}
		}
		if cursor = page.cursor; cursor == "0" {
			return true
		}
	}
}

type namePage struct {
	cursor string
	names  []string
}

// page scans on from a cursor and returns the new names of queues that have
// tickets.
func (w *nameWalk) page(cursor, pattern, kind string, name func(key string) (string, bool)) (namePage, error) {
	return onControl(w.ctx, w.d, func(c client.Conn) (namePage, error) {
		r, err := c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", "1000", "TYPE", kind)
		if err != nil {
			return namePage{}, err
		}
		cursor, keys, err := wire.ReadScan(&r)
		if err != nil {
			return namePage{}, err
		}
		page := namePage{cursor: cursor}
		var names []string
		for _, key := range keys {
			n, ok := name(key)
			if ok && strings.HasPrefix(n, w.prefix) && !w.seen[n] && driver.CheckName(n) == nil {
				w.seen[n] = true
				names = append(names, n)
			}
		}
		for batch := range slices.Chunk(names, wire.MaxBatch) {
			runs := make([]wire.Run, len(batch))
			for i, n := range batch {
				runs[i] = wire.Run{Script: w.d.requests.Scripts.Inspect, Keys: w.d.requests.Make(n).All(), Args: []string{"count"}}
			}
			replies, err := runAll(c, runs)
			if err != nil {
				return page, err
			}
			for i := range replies {
				// A key that is no queue, or of a wrong type, is not listed.
				if has, err := replies[i].Int(); err == nil && has > 0 {
					page.names = append(page.names, batch[i])
				}
			}
		}
		return page, nil
	})
}

// Break implements the method of [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.CheckOpen(ctx); err != nil {
		return err
	}
	if ticketID == "" || strings.ContainsFunc(ticketID, func(r rune) bool { return r < ' ' }) {
		return driver.ErrNoTicket // no id is like this, but other fields are
	}
	m, err := runOnControl(ctx, d, d.requests.Scripts.Remove, d.requests.Make(name), ticketID)
	if err != nil {
		return err
	}
	n, err := m.Int()
	switch {
	case err != nil:
		return driver.Wrap(driver.Refused, wire.ErrForeign)
	case n == 1:
		return nil
	}
	return driver.ErrNoTicket
}
