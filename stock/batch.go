package stock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxBatch is the maximum number of sales in one call. It bounds the time
	// for which a call keeps the server from others.
	maxBatch = 50
	// maxLinger is the time after which a batch is sent although the call before
	// it has no answer yet. It bounds what a slow network adds to a sale.
	maxLinger = 200 * time.Microsecond
)

// batchBounds are a backend's own values of maxBatch and maxLinger.
type batchBounds struct {
	most   int
	linger time.Duration
}

// batcher makes one call for the usual sales of a shard that arrive together. A
// sale that finds no call under way is sent at once, alone. Those that arrive
// while a call is under way form the next batch. It is sent when that call ends,
// when it is full, or when its sales have waited for long enough.
type batcher struct {
	mu    sync.Mutex
	calls int    // under way
	next  *batch // not sent yet, nil if nobody waits
}

// batch is the sales of one call.
type batch struct {
	sales   []*batchedSale // fixed when the batch is sent
	waiting int            // callers that have not given up; guarded by batcher.mu
	overdue *time.Timer    // sends the batch
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // of the whole call, written before done is closed
}

// batchedSale is one sale of a batch.
type batchedSale struct {
	request
	answer answer // written before done is closed
}

// caller sends requests to a shard.
type caller struct {
	life    context.Context // of the client
	backend backend
	at      shard
}

// sell sends a usual sale, alone or in a batch. A call whose context ends leaves
// its batch; its error is NotDone if the batch was not sent yet, and Unknown
// otherwise. A call in which nobody is interested any more is cancelled.
func (l *batcher) sell(ctx context.Context, to caller, q request) (answer, error) {
	if err := driver.Before(ctx); err != nil {
		return answer{}, err
	}
	l.mu.Lock()
	if l.calls == 0 {
		l.calls = 1
		l.mu.Unlock()
		defer l.end(to)
		return to.backend.ask(ctx, to.at, q)
	}
	b, sale := l.addLocked(to, q)
	l.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		if l.withdraw(b, sale) {
			return answer{}, driver.Before(ctx)
		}
		select {
		case <-b.done: // the answer has come in the meantime
		default:
			return answer{}, driver.Wrap(driver.Unknown, context.Cause(ctx))
		}
	}
	switch {
	case b.err != nil:
		return answer{}, b.err
	case sale.answer.status == isApart:
		return to.backend.ask(ctx, to.at, q)
	}
	return sale.answer, nil
}

// addLocked puts a sale into the next batch.
func (l *batcher) addLocked(to caller, q request) (*batch, *batchedSale) {
	b := l.next
	if b == nil {
		b = &batch{done: make(chan struct{})}
		b.overdue = time.AfterFunc(to.backend.batching().linger, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.next == b {
				l.sendLocked(to)
			}
		})
		l.next = b
	}
	sale := &batchedSale{request: q}
	b.sales = append(b.sales, sale)
	b.waiting++
	if len(b.sales) == to.backend.batching().most {
		l.sendLocked(to)
	}
	return b, sale
}

// withdraw gives up the wait for a sale, and reports whether it was not sent and
// will not be. The last caller to give up cancels the call, and waits for its end.
func (l *batcher) withdraw(b *batch, sale *batchedSale) bool {
	l.mu.Lock()
	b.waiting--
	last := b.waiting == 0
	if l.next != b {
		l.mu.Unlock()
		if last {
			b.cancel()
			<-b.done
		}
		return false
	}
	defer l.mu.Unlock()
	b.sales = slices.DeleteFunc(b.sales, func(s *batchedSale) bool { return s == sale })
	if last {
		b.overdue.Stop()
		l.next = nil
	}
	return true
}

// sendLocked sends the next batch, if there is one.
func (l *batcher) sendLocked(to caller) {
	b := l.next
	if b == nil {
		return
	}
	l.next = nil
	l.calls++
	b.overdue.Stop()
	ctx, cancel := context.WithCancel(to.life)
	b.cancel = cancel
	go func() {
		defer l.end(to)
		defer cancel()
		b.err = to.backend.sell(ctx, to.at, b.sales)
		close(b.done)
	}()
}

// end ends a call, and sends the sales that arrived while it was under way.
func (l *batcher) end(to caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	l.sendLocked(to)
}
