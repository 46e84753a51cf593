package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Lead runs fn whenever this client holds the mutex of that name, once for each
// term. The context given to fn ends with the term or with ctx; it carries the
// term's number, which is its Token, and is that of a hold, as Do's. The lock is
// released when fn returns, not before.
//
// Lead campaigns again after a lost term, and while the store is unavailable, at
// growing intervals of 0.1 to 10 s with jitter, and tells the Observer. It blocks
// until it returns nil: when ctx has ended, or when fn has returned nil in a
// valid term; or an error: fn's in a valid term, unless it is that of a ctx that
// has ended; ErrClosed; and what will not pass: ErrKindMismatch, ErrUpgrade, a
// bad name or option, a *StoreError of the class Refused. WithMaxWait has no
// effect. WithMaxHold is an error inside a hold of that name, whose token all terms
// would have. Other clients stand by with Lead of the same name; a standby costs no
// more than a waiter. Those that name one owner with WithOwner lead together, with
// one token.
func (c *Client) Lead(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...Option) error {
	s := c.Mutex(name, opts...).handle()
	if err := s.checkFunc(fn); err != nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	if outer, _ := ctx.Value(s).(*Hold); outer != nil && s.maxHold > 0 {
		return fmt.Errorf("holdfast: %q: Lead with MaxHold inside a hold of the same name: all of its terms would have that hold's token", name)
	}
	s.maxWait = 0
	for pause := (campaignPause{}); ; {
		begun := time.Now()
		done, err := s.leadOnce(ctx, fn)
		if done {
			return err
		}
		c.report.background(BackgroundErrorInfo{Op: "campaign", Name: name,
			Err: fmt.Errorf("holdfast: lead %q: campaign again: %w", name, err)})
		if !pauseCampaign(ctx, c.shutdown.closing, pause.next(time.Since(begun))) {
			if ctx.Err() != nil {
				return nil
			}
			return &nameError{name: name, err: ErrClosed}
		}
	}
}

// leadOnce waits for one term and runs fn in it. done reports that Lead returns
// err; otherwise err is the reason to campaign again.
func (s *spec) leadOnce(ctx context.Context, fn func(ctx context.Context) error) (done bool, err error) {
	h, err := s.lock(ctx, 1, false)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return true, nil
	default:
		return !mayPass(err), err
	}
	err, over := runTerm(h, h.context(h.workParent(ctx)), fn)
	switch {
	case over != nil && errors.Is(over, ErrClosed):
		return true, errors.Join(err, over)
	case over != nil && ctx.Err() != nil:
		return true, nil
	case over != nil:
		return false, errors.Join(err, over)
	case err != nil && ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return true, nil
	}
	return true, err
}

// mayPass reports whether a Lock that failed with err may succeed later.
func mayPass(err error) bool {
	failed, ok := errors.AsType[*StoreError](err)
	return ok && driver.ClassOf(failed.Err) != driver.Refused
}

// campaignPause returns the pauses between campaigns.
type campaignPause struct{ failures int }

const (
	minCampaignPause = 100 * time.Millisecond
	maxCampaignPause = 10 * time.Second
)

// next returns the pause after a campaign and its term lasted for that long. The
// pauses double, up to maxCampaignPause, with as much of jitter as they are long;
// they begin anew after a campaign that lasted longer than maxCampaignPause.
func (p *campaignPause) next(lasted time.Duration) time.Duration {
	if lasted > maxCampaignPause {
		p.failures = 0
	}
	base := min(minCampaignPause<<min(p.failures, 10), maxCampaignPause/2)
	p.failures++
	return base + rand.N(base)
}

// pauseCampaign waits for d, and reports false if ctx ends or closing is closed
// first.
func pauseCampaign(ctx context.Context, closing <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-closing:
	}
	return false
}
