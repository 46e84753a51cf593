package stock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// sender sends requests to the servers of one client, and sends them again
// while a server does not answer.
type sender struct {
	backend  backend
	patience time.Duration   // Options.Patience
	life     context.Context // of the client
}

// ask sends a request, and retries it as again does.
func (s *sender) ask(ctx context.Context, at shard, q request) (answer, error) {
	return s.repeat(ctx, at, q, func() (answer, error) { return s.backend.ask(ctx, at, q) })
}

// decide sends the request of a sale to its home. Usual sales may share a call.
func (s *sender) decide(ctx context.Context, k *knownDirectory, home shard, q request) (answer, error) {
	if !q.isUsual() {
		return s.ask(ctx, home, q)
	}
	return s.repeat(ctx, home, q, func() (answer, error) {
		return k.batchers[home.i].sell(ctx, caller{s.life, s.backend, home}, q)
	})
}

// repeat calls send for a request, and retries it as again does.
func (s *sender) repeat(ctx context.Context, at shard, q request, send func() (answer, error)) (a answer, err error) {
	doubt := false
	err = s.again(ctx, func() (err error) {
		a, err = send()
		doubt = doubt || err != nil && driver.ClassOf(err) == driver.Unknown
		return err
	})
	a.doubt = doubt
	if err == nil && a.status == isAbsent {
		err = fmt.Errorf("stock: shard %d of %q is not there: server %d has lost its data", at.i, at.sku, at.server+1)
	}
	if err == nil && a.status == isMoved && a.epoch < q.epoch {
		err = fmt.Errorf("stock: shard %d of %q is of epoch %d, and the product of epoch %d: server %d has gone back to older data, "+
			"and what was sold there since is not known", at.i, at.sku, a.epoch, q.epoch, at.server+1)
	}
	return a, err
}

// again calls f until it succeeds, a retry is useless, or its patience has ended.
// A failure is ErrUnknown if any of the tries may have been carried out.
func (s *sender) again(ctx context.Context, f func() error) error {
	var began time.Time
	unknown := false
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := f()
		if err == nil {
			return nil
		}
		if s.life.Err() != nil {
			return ErrClosed
		}
		class := driver.ClassOf(err)
		unknown = unknown || class == driver.Unknown
		if began.IsZero() {
			began = time.Now()
		}
		wait := time.NewTimer(pause/2 + rand.N(pause))
		if class != driver.Refused && ctx.Err() == nil && time.Since(began) < s.patience {
			select {
			case <-wait.C:
				continue
			case <-ctx.Done():
			case <-s.life.Done():
			}
		}
		wait.Stop()
		if unknown {
			return fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		if class == driver.Refused {
			return fmt.Errorf("stock: %w", err)
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
