package once_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/once"
	"github.com/holdfast-go/holdfast/memlock"
)

// Example shows a world of 20 hosts in real time, on a store in memory.
func Example() {
	s := memlock.NewStore()
	w := once.World{
		Seed: 1, Names: []string{"report"}, Hosts: 20, Slots: 60,
		Open:  func() (driver.Driver, error) { return memlock.New(s), nil },
		Every: time.Minute, Skew: 5 * time.Minute, Speed: 30, TTL: 10 * time.Second, // a slot every 2 s
		Job:    func(rnd *rand.Rand) time.Duration { return rand.N(3 * time.Second) },
		Faults: 5 * time.Second, Down: 20 * time.Second,
	}
	fmt.Println(w.Run())
}

// ExampleReport_Add adds the counts of two worlds.
func ExampleReport_Add() {
	var all once.Report
	all.Add(once.Report{Slots: 100, Runs: 101, Unfinished: 1})
	all.Add(once.Report{Slots: 100, Runs: 100})
	fmt.Println(all.Slots, "slots,", all.Runs, "runs,", all.Unfinished, "unfinished")
	// Output: 200 slots, 201 runs, 1 unfinished
}

// TestWorldWithoutFaultsRunsEachSlotOnce checks that nothing runs again where
// nothing fails.
func TestWorldWithoutFaultsRunsEachSlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memlock.NewStore()
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		w := once.World{
			Seed: 7, Names: []string{"a", "b"}, Hosts: 10, Slots: 60,
			Open:  func() (driver.Driver, error) { return memlock.New(s), nil },
			Every: time.Minute, Skew: 10 * time.Minute, TTL: 30 * time.Second,
			Job: func(rnd *rand.Rand) time.Duration { return time.Duration(rnd.IntN(90)) * time.Second },
		}
		rep, err := w.Run()
		if err != nil || rep.Runs != 120 || rep.Late != rep.Asked-120 || len(rep.Errors) > 0 {
			t.Errorf("%v, %v", rep, err)
		}
	})
}
