package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// dyingBackend is the backend of a client that dies at a request: before the
// request is sent, or after it was carried out and before the answer arrives.
type dyingBackend struct {
	backend
	mu    sync.Mutex
	left  int // it dies at this request from now
	after bool
}

func (m *dyingBackend) send(f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left > 0 {
		return f()
	}
	if m.left == 0 && m.after {
		_ = f()
	}
	return errDead
}

func (m *dyingBackend) ask(ctx context.Context, at shard, q request) (a answer, err error) {
	err = m.send(func() error { a, err = m.backend.ask(ctx, at, q); return err })
	return a, err
}

func (m *dyingBackend) directory(ctx context.Context, sku string) (text []byte, now int64, err error) {
	err = m.send(func() error { text, now, err = m.backend.directory(ctx, sku); return err })
	return text, now, err
}

func (m *dyingBackend) swap(ctx context.Context, sku string, from, to []byte) (ok bool, err error) {
	err = m.send(func() error { ok, err = m.backend.swap(ctx, sku, from, to); return err })
	return ok, err
}

// TestDeathAtEachStep kills a client at each of its steps. The numbers add up,
// and another client that repeats the call ends where the first one would have.
func TestDeathAtEachStep(t *testing.T) {
	testDeaths(t, func(*testing.T) func() backend { return func() backend { return newMemory(2) } })
}

// TestDeathAtStepsInDatabases is TestDeathAtEachStep for the call with the most
// kinds of steps, after each step. Shorter runs leave room for the statements below a
// step, which TestEveryStatementCut cuts.
func TestDeathAtStepsInDatabases(t *testing.T) {
	for _, p := range []place{onPostgres, onMariaDB} {
		t.Run(p.name, func(t *testing.T) {
			testDeaths(t, func(t *testing.T) func() backend {
				s := p.open(t)(t, nil).sender.backend.(*sqlServers)
				return func() backend { s.empty(t); return s }
			}, "gather")
		})
	}
}

// testDeaths kills a client at each step of calls: of all, before and after the
// step, or of those named, after it. The stores are empty.
func testDeaths(t *testing.T, stores func(*testing.T) (empty func() backend), only ...string) {
	ctx := t.Context()
	sold := func(ids ...string) func(*Stock) error {
		return func(s *Stock) (err error) {
			for _, id := range ids {
				_, e := s.Sell(ctx, "x", 4, id)
				err = errors.Join(err, e)
			}
			return err
		}
	}
	for what, c := range map[string]struct {
		before, call func(*Stock) error
		left         int64
	}{
		"set":         {nil, func(s *Stock) error { return nil }, 20},
		"sell":        {nil, sold("a"), 16},
		"gather":      {sold("a", "b"), sold("c", "d", "e"), 0}, // 5 shards with 4 each
		"more shards": {sold("a"), func(s *Stock) error { return s.Rebalance(ctx, "x", 9) }, 16},
		"one shard":   {sold("a"), func(s *Stock) error { return s.Rebalance(ctx, "x", 1) }, 16},
		"return":      {sold("a"), func(s *Stock) error { return s.Return(ctx, "x", "a") }, 20},
		"sell moved": {func(s *Stock) error { return errors.Join(sold("a")(s), s.Rebalance(ctx, "x", 2)) },
			sold("a", "b", "c"), 8},
		"reserve": {nil, func(s *Stock) error {
			_, err := s.Reserve(ctx, "x", 18, "a", time.Hour)
			if c, ok := errors.AsType[*ConflictError](err); ok && c.Receipt.State == Sold {
				err = nil
			}
			return errors.Join(err, s.Confirm(ctx, "x", "a"))
		}, 2},
	} {
		if len(only) > 0 && !slices.Contains(only, what) {
			continue
		}
		t.Run(what, func(t *testing.T) {
			steps, store := 0, stores(t)
			for done := false; !done; {
				steps++
				for _, after := range []bool{false, true} {
					if !after && len(only) > 0 {
						continue
					}
					m := store()
					clean := over(t, m, nil)
					if what != "set" {
						must(t, clean.Set(ctx, "x", 20, 5))
					}
					if c.before != nil {
						must(t, c.before(clean))
					}
					s := over(t, &dyingBackend{backend: m, left: steps, after: after}, nil)
					err := c.call(s)
					if what == "set" {
						err = s.Set(ctx, "x", 20, 5)
					}
					done = err == nil
					if err != nil && !errors.Is(err, errDead) && !errors.Is(err, ErrUnavailable) {
						t.Fatalf("it died at step %d, and says %v", steps, err)
					}
					other := over(t, m, nil)
					if what == "set" {
						must(t, other.Set(ctx, "x", 20, 5))
					} else if got, err := other.Total(ctx, "x"); err != nil || !got.Exact {
						t.Fatalf("after a death at step %d the total is %+v, %v", steps, got, err)
					}
					if err := c.call(other); err != nil {
						t.Fatalf("after a death at step %d: %v", steps, err)
					}
					count(t, other, "x", 20, c.left)
				}
			}
			if steps < 3 {
				t.Errorf("it has only %s", fmt.Sprint(steps))
			}
		})
	}
}
