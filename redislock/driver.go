package redislock

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// Driver keeps queues in one Redis server. It implements [driver.Driver],
// [driver.Identifier] and [driver.Checker].
type Driver struct{ server *server.Driver }

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
	_ driver.Noticer    = (*Driver)(nil)
	_ driver.Marker     = (*Driver)(nil)
)

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits { return traits }

// Join implements [driver.Driver]. Limits above 2^53 - 1 are refused.
func (d *Driver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	return d.server.Join(ctx, t, wait)
}

// Renew implements [driver.Driver]: one script renews up to 256 tickets; in a
// cluster there is one for each slot, all sent at once. When a mutex was lost,
// another script follows, which advances the queues concerned.
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.server.Renew(ctx, refs)
}

// Leave implements [driver.Driver]: a script for each ticket, all sent at once.
func (d *Driver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.server.Leave(ctx, refs)
}

// Watch implements [driver.Driver], on a connection of its own.
func (d *Driver) Watch(ctx context.Context, notify func(id string, p driver.Status)) error {
	return d.server.Watch(ctx, notify)
}

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return d.server.Inspect(ctx, name)
}

// Names implements [driver.Driver]: it walks through the keys that begin with
// the prefix, and through the keys of the waiters' lists, and asks for each
// queue whether it has tickets. The names seen are kept in memory until the
// walk is over.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return d.server.Names(ctx, prefix)
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	return d.server.Break(ctx, name, ticketID)
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	return d.server.Mark(ctx, name)
}

// SetMark implements [driver.Marker]. With MinReplicas, a mark that too few
// replicas confirm in time is an error of unknown outcome.
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	return d.server.SetMark(ctx, name, m)
}

// Identity implements [driver.Identifier]: the server's run id, the database
// and the prefix. The run id changes with every restart.
func (d *Driver) Identity(ctx context.Context) (string, error) { return d.server.Identity(ctx) }

// Server returns a text that is equal for two drivers exactly if they speak to
// the same server, whatever the database and the prefix: such drivers fail
// together. The text changes with every restart. Server blocks for a round
// trip; its errors are those of Identity.
func (d *Driver) Server(ctx context.Context) (string, error) { return d.server.Server(ctx) }

// Check implements [driver.Checker]. It takes and releases a lock of its own,
// and removes the keys that the lock leaves behind.
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) { return d.server.Check(ctx) }

// Notices implements [driver.Noticer]: it reports that the server may evict
// locks when its memory runs out.
func (d *Driver) Notices() []driver.Finding { return d.server.Notices() }

// Close implements [driver.Driver]. It waits for the requests under way, but
// at most two seconds for a server that does not answer. A goroutine that then
// still waits on the user's own client ends with the client's time-out.
func (d *Driver) Close() error { return d.server.Close() }
