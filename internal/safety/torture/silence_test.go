package torture

import (
	"strings"
	"testing"
	"time"
)

// TestF105_PlansHaveSilentStores checks that plans contain silent stores.
func TestF105_PlansHaveSilentStores(t *testing.T) {
	cfg := config("memory:plans")
	cfg.Duration, cfg.Faults = 10*time.Minute, []string{Requests}
	n := 0
	for _, s := range cfg.Plan() {
		if !strings.Contains(s.Plan, "any: cut request 1h") {
			continue
		}
		if n++; s.For < cfg.TTL && s.end() < cfg.Duration {
			t.Errorf("%v is shorter than the TTL, %v", s, cfg.TTL)
		}
	}
	if n < 10 {
		t.Errorf("%d silences in ten minutes", n)
	}
}

// TestF105_SilentStoreBreaksNoPromise checks that a silent store breaks no
// promise.
func TestF105_SilentStoreBreaksNoPromise(t *testing.T) {
	cfg := config("memory:" + t.Name())
	cfg.Duration, cfg.TTL = 3*time.Second, 400*time.Millisecond
	cfg.Faults = []string{Requests}
	for cfg.Seed = 1; ; cfg.Seed++ { // a seed with a store that is silent for most of the run
		silent := time.Duration(0)
		for _, s := range cfg.Plan() {
			if strings.Contains(s.Plan, "any: cut request 1h") {
				silent += s.For
			}
		}
		if silent > cfg.Duration/3 {
			break
		}
	}
	sound(t, cfg, 0)
}
