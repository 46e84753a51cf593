package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// spec is what a handle was made with.
type spec struct {
	c         *Client
	err       error // of a bad option or name; reported by each call
	name      string
	key       lineKey
	maxHold   time.Duration
	lineLimit bool
	meta      metaEncoder
}

func (c *Client) spec(name string, limit int64, opts []Option) *spec {
	st := c.settings
	for _, o := range opts {
		o(&st)
	}
	s := &spec{c: c, name: name, maxHold: st.maxHold, lineLimit: st.lineLimit}
	full, err := c.storeName(name)
	if err == nil {
		err = st.check(c.traits)
	}
	switch {
	case err != nil:
	case limit > 1 && !c.traits.Shared:
		err = fmt.Errorf("holdfast: %q: %s: %w", name, kindOf(limit), ErrUnsupported)
	case st.prefix != c.settings.prefix || st.observer != c.settings.observer:
		err = errors.New("holdfast: WithPrefix and WithObserver are options of New")
	}
	s.err = err
	s.key = lineKey{name: full, limit: limit, owner: st.owner, ttl: st.ttl}
	if s.meta = c.meta; st.owner != c.settings.owner || st.note != c.settings.note {
		s.meta = newMetaEncoder(st.owner, st.note)
	}
	return s
}

// lock takes units of the line, waiting unless try.
func (s *spec) lock(ctx context.Context, units int64, try bool) (*Hold, error) {
	if s.err != nil {
		return nil, s.err
	}
	key := s.key
	key.units = units
	for {
		h, err := s.lockKey(ctx, key, try)
		if err == nil {
			if o := s.c.observer(); o.Acquired != nil && h.root == h {
				guard(func() { o.Acquired(s.name, h.token, time.Since(h.wait.asked)) })
			}
			s.c.waited(h)
			return h, nil
		}
		var have int64
		if h != nil {
			have = h.wait.have
		}
		adopt := s.lineLimit && have > 1 && have != driver.RWLimit && have != key.limit
		if !adopt || units > have {
			return nil, err
		}
		key.limit = have
	}
}

// lockKey is one attempt; with an error, the hold only says what limit the
// line has, if that was why.
func (s *spec) lockKey(ctx context.Context, key lineKey, try bool) (*Hold, error) {
	c := s.c
	asked := time.Now()
	if ctx.Err() != nil {
		return nil, waitError(ctx, s.name, asked, Holder{})
	}
	l, h := c.line(key)
	if l == nil {
		return nil, &nameError{name: s.name, err: ErrClosed}
	}
	defer c.calls.Done()
	h.ctx, h.wait.spec, h.wait.asked = ctx, s, asked
	if up, _ := ctx.Value(l).(*Hold); up != nil {
		c.releaseLine(l)
		if err := h.nest(ctx, up, key, try); err != nil {
			return nil, err
		}
		return h, nil
	}
	if err := l.acquire(ctx, h, try); err != nil {
		c.releaseLine(l)
		return h, err
	}
	return h, nil
}

// do runs fn under a hold. It judges at the instant fn returns.
func (s *spec) do(ctx context.Context, units int64, fn func(ctx context.Context) error) error {
	h, err := s.lock(ctx, units, false)
	if err != nil {
		return err
	}
	return run(h, h.context(ctx), fn)
}

// held is what Do and its kin run under.
type held interface {
	Err() error
	Unlock() error
}

// run calls fn, and releases also when it panics or exits the goroutine.
func run(h held, ctx context.Context, fn func(ctx context.Context) error) error {
	defer h.Unlock() // the work was done under a good claim, or lost says not
	err := fn(ctx)
	if over := h.Err(); over != nil {
		return errors.Join(err, over)
	}
	return err
}

// permits checks a number of permits of a semaphore.
func (s *spec) permits(n int) (int64, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case n < 1:
		return 0, fmt.Errorf("holdfast: %q: %d permits asked for, the least is 1", s.name, n)
	case int64(n) > s.key.limit && !s.lineLimit:
		return 0, fmt.Errorf("holdfast: %q: %d permits asked for, the semaphore has %d", s.name, n, s.key.limit)
	}
	return int64(n), nil
}

const maxPermits = math.MaxInt32
