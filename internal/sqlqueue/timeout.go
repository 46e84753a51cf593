package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Within returns ctx if it has a deadline, and otherwise a context that ends
// after limit, with a cause that says so.
func Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return Until(ctx, limit)
}

// Until returns a context that ends with ctx, or after limit, with a cause that
// says so.
func Until(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer in %v: %w", limit, context.DeadlineExceeded))
}

// silenceLimit is the least time without an answer after which a timeout hints
// at a dead connection, and not only at a caller in a hurry.
const silenceLimit = 50 * time.Millisecond

// Silent reports whether a failed request that began at this time timed out
// without an answer. Its connection may be dead, and so may others of the same
// age.
func Silent(ctx context.Context, began time.Time) bool {
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) >= silenceLimit
}

// TooLate reports whether a request that asked for a connection at this time has got one
// so late that it would most likely end before the answer, and the connection with it.
// Such a request has waited for longer than it may still take.
func TooLate(ctx context.Context, asked time.Time) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < min(silenceLimit, time.Since(asked))
}
