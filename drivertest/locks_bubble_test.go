package drivertest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestCasesAtExactTimes runs the cases where things end at one instant that apart
// from a bubble end one after the other, with several TTLs, and on a store that
// takes its time for each answer.
func TestCasesAtExactTimes(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, time.Second, 9 * time.Second, 30 * time.Second} {
		for _, latency := range []time.Duration{0, 5 * time.Millisecond, min(ttl/8, time.Second)} {
			for _, c := range lockCases() {
				if c.pause {
					continue // the store in memory is never silent
				}
				t.Run(fmt.Sprintf("%v/%v/%s", ttl, latency, c.name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := memlock.NewStore()
						open := func(T) driver.Driver {
							if latency == 0 {
								return memlock.New(s)
							}
							return faults.Wrap(memlock.New(s), faults.Plan{Rules: []faults.Rule{
								{On: faults.Any, Do: faults.HoldAnswer, For: latency},
								{On: faults.Push, Do: faults.Late, For: latency},
							}})
						}
						h := InBubble(Harness{Open: open, TTL: ttl, Slack: 50*time.Millisecond + 10*latency})
						if failures := Record(c.name, func(t T) { playLocks(t, h, c, memlock.New(s).Traits()) }); len(failures) > 0 {
							t.Errorf("%.500s", strings.Join(failures, "; "))
						}
						time.Sleep(time.Hour)
					})
				})
			}
		}
	}
}
