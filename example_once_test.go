package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// ExampleClient_Once shows two replicas that both tick: one of them makes each
// hour's report, and the other hears that it is done.
func ExampleClient_Once() {
	ctx := context.Background()
	store := memlock.NewStore()
	// These clients stand for two replicas.
	a, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	defer b.Close()

	makeReport := func(ctx context.Context) error {
		fmt.Println("the report is made")
		return nil
	}
	now := time.Date(2026, 11, 23, 14, 0, 3, 0, time.UTC) // time.Now() in a program
	for _, replica := range []*holdfast.Client{a, b} {
		done, err := replica.Once(ctx, "report", holdfast.Slot(now, time.Hour), makeReport)
		fmt.Println(done.Slot.Format(time.Kitchen), "made here:", done.Here, err)
	}
	// Output:
	// the report is made
	// 2:00PM made here: true <nil>
	// 2:00PM made here: false <nil>
}

// ExampleClient_TryOnce shows a function that leaves its slot open.
func ExampleClient_TryOnce() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	slot := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	ready := false
	for range 3 {
		_, err := locks.TryOnce(ctx, "import", slot, func(ctx context.Context) error {
			if !ready {
				ready = true
				return fmt.Errorf("the file is not there yet: %w", holdfast.ErrNotDone)
			}
			fmt.Println("imported")
			return nil
		})
		fmt.Println("open:", errors.Is(err, holdfast.ErrNotDone))
	}
	// Output:
	// open: true
	// imported
	// open: false
	// open: false
}

// ExampleClient_LastDone shows an alarm for a job that has not run.
func ExampleClient_LastDone() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	slot := holdfast.Slot(time.Now(), 24*time.Hour)
	_, err = locks.Once(ctx, "backup", slot, func(ctx context.Context) error { return nil }, holdfast.WithNote("the night's backup"))
	if err != nil {
		fmt.Println(err)
	}
	last, err := locks.LastDone(ctx, "backup")
	if err != nil {
		fmt.Println(err)
	}
	if time.Since(last.Slot) > 48*time.Hour {
		fmt.Println("no backup since", last.Slot)
	}
	fmt.Println(last.By.Note, "is done:", last.Slot.Equal(slot))
	// Output: the night's backup is done: true
}

// ExampleSlot shows the slots of an hour, of a day and of a week.
func ExampleSlot() {
	t := time.Date(2026, 11, 26, 13, 59, 55, 0, time.UTC) // a Thursday; the timer is 5 s early
	fmt.Println(holdfast.Slot(t, time.Hour))
	fmt.Println(holdfast.Slot(t, 24*time.Hour))
	fmt.Println(holdfast.Slot(t, 7*24*time.Hour))
	// Output:
	// 2026-11-26 14:00:00 +0000 UTC
	// 2026-11-26 00:00:00 +0000 UTC
	// 2026-11-23 00:00:00 +0000 UTC
}
