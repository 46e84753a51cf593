package etcdlock

import (
	"context"
	"testing"
	"time"
)

// TestF121_FreshnessIsJudgedOnceForABatch checks that a keep-alive that was
// recent enough when a batch began stays recent enough for each of its places.
// If each place were judged anew, it would cost a round trip of its own once
// the time ran out in between.
func TestF121_FreshnessIsJudgedOnceForABatch(t *testing.T) {
	now := time.Now()
	// The keep-alive was recent enough for a second, which ended 500 ms ago.
	s := &session{all: &sessions{life: &lifetime{ctx: t.Context()}}, ttl: 6 * time.Second, granted: 8 * time.Second, sent: now.Add(-1500 * time.Millisecond)}
	got, err := s.promise(t.Context(), now.Add(-600*time.Millisecond))
	if err != nil || got != s.ttl {
		t.Errorf("a request from the first second is promised %v, %v; want %v at once", got, err, s.ttl)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.promise(ctx, now); err == nil {
		t.Error("a request from later is promised something without a keep-alive")
	}
}
