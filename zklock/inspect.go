package zklock

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect implements [driver.Driver]. Entry.Left is always the TTL: ZooKeeper
// does not tell how long a session still has.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return request(ctx, d, func(s *session) (driver.Queue, error) {
		queue, q := driver.Queue{Name: name}, queueNode{s, d.queuePath(name)}
		v, err := q.list()
		if err == nil {
			err = v.check(q.path)
		}
		if err != nil {
			return queue, err
		}
		entries, err := q.entries(&v)
		if err != nil {
			return queue, err
		}
		for _, e := range entries {
			if e.ID == "" {
				continue // the node went while the queue was read
			}
			queue.Limit = v.shown()
			queue.Token = max(queue.Token, e.Token)
			queue.Tickets = append(queue.Tickets, e)
		}
		return queue, nil
	})
}

// shown returns the limit of a queue for display: a queue that has only kazoo's
// exclusive locks is shown as a mutex.
func (v *view) shown() int64 {
	if limit := v.limit(); limit != 0 || len(v.nodes) == 0 {
		return limit
	}
	return 1
}

// Names implements [driver.Driver]. It sends a request for each path that may
// be a queue.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.checkOpen(ctx); err != nil {
			yield("", err)
			return
		}
		s, err := d.any(ctx)
		if err != nil {
			yield("", err)
			return
		}
		elements, err := doFor(ctx, s, func() ([]string, error) {
			elements, _, err := s.conn.Children(d.syncPath())
			return elements, err
		})
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		if err != nil {
			yield("", classed("list "+d.syncPath(), err))
			return
		}
		var wanted, plain []string
		for _, el := range elements {
			name, err := decodeName(el)
			if isHashed(el) || err == nil && strings.HasPrefix(name, prefix) {
				wanted, plain = append(wanted, el), append(plain, name)
			}
		}
		for len(wanted) > 0 {
			n := min(len(wanted), namesAtOnce)
			names, err := doFor(ctx, s, func() ([]string, error) {
				names, errs := make([]string, n), make([]error, n)
				inParallel(n, func(i int) { names[i], errs[i] = queueNode{s, d.base + "/" + wanted[i]}.name(wanted[i], plain[i]) })
				return names, cmp.Or(errs...)
			})
			if err != nil {
				yield("", err)
				return
			}
			for _, name := range names {
				if name != "" && strings.HasPrefix(name, prefix) && !yield(name, nil) {
					return
				}
			}
			wanted, plain = wanted[n:], plain[n:]
		}
	}
}

// namesAtOnce is the number of queues listed before the first of their names is
// yielded; 16 listings are under way at a time.
const namesAtOnce = 256

// Break implements [driver.Driver]. The tickets of other libraries are
// identified by the names of their nodes.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	_, err := request(ctx, d, func(s *session) (any, error) {
		return nil, queueNode{s, d.queuePath(name)}.breakTicket(ticketID)
	})
	return err
}

// Identity implements [driver.Identifier]. The identity is the content of a
// node beside the queues; the first client that needs the node creates it, for
// good.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	return request(ctx, d, func(s *session) (string, error) { return tree{s}.identity() })
}
