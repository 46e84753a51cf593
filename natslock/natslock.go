// Package natslock keeps queues of tickets in a NATS JetStream key/value bucket.
//
// A queue is one record under the key queue.NAME of the bucket. Each request
// reads the record and the server's clock in one round trip, and writes the
// record in a second one, on the condition that nobody wrote it in between
// (compare-and-set on the revision). Requests of one client about one name that
// are under way together share both round trips, and those about several names the
// reading of the clock. A request that lost the race
// reads again, after a short pause.
//
// The clock is that of the server that leads the bucket's stream, which comes
// with the stream's information; no client's clock takes part. Tokens follow that
// clock and the record's last token, so that they grow also after the bucket was
// emptied, or brought back from a backup.
//
// The client that grants a ticket notifies its client by a message on the
// subject holdfast.push.BUCKET.ADDRESS, which is not stored. A message that got
// lost is made up for by the next renewal.
//
// Records of idle queues expire by themselves, by a TTL of the message, which
// needs nats-server 2.11 or newer.
package natslock

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/nats-io/nats.go"
)

// MinTTL and MaxTTL are the shortest and the longest TTL.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// Driver is one client of a bucket. It has one connection. Its mutex, that of the
// bucket's calls and that of the clock are never taken one under the other, and no
// request is sent under any of them.
type Driver struct {
	bucket  bucket
	own     bool // Close closes the bucket's connection
	opts    Options
	traits  driver.Traits
	clock   clock
	pushes  pushes
	stopped chan struct{} // closed when the goroutine of followConnection has ended
	events  chan nats.Status

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	work    sync.WaitGroup // goroutines of lanes
	notices []driver.Finding

	mu     sync.Mutex
	closed bool
	lanes  map[string]*lane // by key, those with calls under way
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ driver.Noticer    = (*Driver)(nil)
	_ driver.Marker     = (*Driver)(nil)
)

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return d.traits }

// Join implements [driver.Driver].
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	o := d.request(ctx, t.Name, func(r *request) (any, error) { return r.join(t, wait, d.pushes.address) })
	st, err := o.wait()
	if err != nil {
		return driver.Status{}, err
	}
	return st.(driver.Status), nil
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.each(ctx, refs, (*request).renew)
}

// Leave implements [driver.Driver].
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.each(ctx, refs, (*request).leave)
}

// maxQueues is the number of queues that one Renew or Leave writes at once.
const maxQueues = 64

// each makes one request for each queue that refs are of.
func (d *Driver) each(ctx context.Context, refs []driver.Ref, do func(*request, *driver.Ref) driver.Status) ([]driver.Status, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	var names []string
	of := make(map[string][]int)
	for i := range refs {
		if of[refs[i].Name] == nil {
			names = append(names, refs[i].Name)
		}
		of[refs[i].Name] = append(of[refs[i].Name], i)
	}
	statuses := make([]driver.Status, len(refs))
	for some := range slices.Chunk(names, maxQueues) {
		ops := make([]*op, len(some))
		for i, name := range some {
			of := of[name]
			ops[i] = d.request(ctx, name, func(r *request) (any, error) {
				some := make([]driver.Status, len(of))
				for j, k := range of {
					r.steps, r.drops = 0, 0
					some[j] = do(r, &refs[k])
				}
				return some, nil
			})
		}
		for i, name := range some {
			answers, err := ops[i].wait()
			for j, k := range of[name] {
				if err != nil {
					statuses[k] = driver.Status{Err: err}
				} else {
					statuses[k] = answers.([]driver.Status)[j]
				}
			}
		}
	}
	return statuses, nil
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	q, err := d.request(ctx, name, func(r *request) (any, error) { return r.inspect(), nil }).wait()
	if err != nil {
		return driver.Queue{}, err
	}
	return q.(driver.Queue), nil
}

// Names implements [driver.Driver]. It yields the names in use when it began, and
// reads the record of each one.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.checkOpen(ctx); err != nil {
			yield("", err)
			return
		}
		keys, err := d.bucket.keys(ctx, queuePrefix)
		if err != nil {
			yield("", err)
			return
		}
		for _, key := range keys {
			name, err := d.nameInUse(ctx, key, prefix)
			if err != nil {
				yield("", err)
				return
			}
			if name != "" && !yield(name, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	_, err := d.request(ctx, name, func(r *request) (any, error) { return nil, r.breakTicket(ticketID) }).wait()
	return err
}

// Identity implements [driver.Identifier]. It tells buckets apart by the time at
// which their stream was created.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.checkOpen(ctx); err != nil {
		return "", err
	}
	info, err := d.bucket.streamInfo(ctx)
	if err != nil {
		return "", err
	}
	return "nats:" + d.bucket.name + "@" + info.Created.UTC().Format(time.RFC3339Nano), nil
}

// Close implements [driver.Driver].
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.work.Wait()
	d.pushes.end()
	if d.own {
		d.bucket.nc.Close()
	} else {
		_ = d.bucket.nc.Flush() // the last pushes
	}
	d.bucket.nc.RemoveStatusListener(d.events)
	<-d.stopped
	return nil
}

func (d *Driver) checkOpen(ctx context.Context) error {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// nameInUse returns the name of the record under a key if it begins with prefix
// and has tickets, and else "".
func (d *Driver) nameInUse(ctx context.Context, key, prefix string) (string, error) {
	e, err := d.bucket.get(ctx, key)
	if err != nil || e.data == nil {
		return "", err
	}
	q, err := decode(key, "", e.data)
	if err != nil || queueKey(q.Name) != key || len(q.Places) == 0 || len(q.Name) < len(prefix) || q.Name[:len(prefix)] != prefix {
		return "", nil
	}
	now, err := d.Inspect(ctx, q.Name)
	if err != nil || len(now.Tickets) == 0 {
		return "", err
	}
	return q.Name, nil
}
