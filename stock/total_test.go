package stock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// busy is a backend on which other clients sell while a client counts: they
// have a turn between any two of its looks.
type busy struct {
	backend
	between func()
}

func (b *busy) directory(ctx context.Context, sku string) ([]byte, int64, error) {
	b.between()
	return b.backend.directory(ctx, sku)
}

// TestTotalWhileItIsSold checks Total while other clients sell. It does not
// claim to be exact, and its bounds hold the units left at a moment during the
// call. That is also true when every sale is returned at once, and the numbers
// seem not to have changed.
func TestTotalWhileItIsSold(t *testing.T) {
	ctx := t.Context()
	const units = 100
	for what, c := range map[string]struct {
		turn func(s *Stock, i int) error
		left func(turns int) int64
	}{
		"sold":     {func(s *Stock, i int) error { return second(s.Sell(ctx, "x", 3, fmt.Sprint(i))) }, func(n int) int64 { return units - 3*int64(n) }},
		"added":    {func(s *Stock, i int) error { return s.Add(ctx, "x", 2, fmt.Sprint(i)) }, func(n int) int64 { return units + 2*int64(n) }},
		"returned": {func(s *Stock, i int) error { return sellAndReturn(ctx, s, i) }, func(int) int64 { return units }},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMemory(3)
			others := over(t, m, nil)
			must(t, others.Set(ctx, "x", units, 5))
			turns, quiet := 0, false
			s := over(t, &busy{m, func() {
				if quiet {
					return
				}
				turns++
				must(t, c.turn(others, turns))
			}}, nil)
			got, err := s.Total(ctx, "x")
			must(t, err)
			last := c.left(turns)
			if turns < 2 {
				t.Fatalf("others had %d turns: the test has no sale between two looks", turns)
			}
			if got.Exact {
				t.Errorf("with %d turns of others it says that %+v is exact", turns, got)
			}
			// The moments are those before and after the last turn: all other
			// turns came before the look that counts.
			if before := c.left(turns - 1); got.Least > min(before, last) || got.Most < max(before, last) {
				t.Errorf("left were %d and then %d, and the bounds are %+v", before, last, got)
			}
			if got.Most-got.Least > 2*3 {
				t.Errorf("one turn makes the bounds %+v", got)
			}
			quiet = true
			if got, err := s.Total(ctx, "x"); err != nil || !got.Exact || got.Least != last || got.Most != last {
				t.Errorf("when it is quiet, the total is %+v, %v; want %d left", got, err, last)
			}
		})
	}
}

func sellAndReturn(ctx context.Context, s *Stock, i int) error {
	if _, err := s.Sell(ctx, "x", 3, fmt.Sprint(i)); err != nil {
		return err
	}
	return s.Return(ctx, "x", fmt.Sprint(i))
}

// TestSoldOutForAShortTime checks that the default of SoldOutFor is the
// documented one.
func TestSoldOutForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, m := t.Context(), newMemory(1)
		s, other := over(t, m, nil), over(t, m, nil)
		must(t, s.Set(ctx, "x", 0, 2))
		if _, err := s.Sell(ctx, "x", 1, "a"); err == nil {
			t.Fatal("sold what was not there")
		}
		must(t, other.Add(ctx, "x", 9, "delivery"))
		time.Sleep(100*time.Millisecond - 1)
		if _, err := s.Sell(ctx, "x", 1, "b"); err == nil {
			t.Error("it asks before the time is over")
		}
		time.Sleep(time.Nanosecond)
		if _, err := s.Sell(ctx, "x", 1, "c"); err != nil {
			t.Errorf("after the time: %v", err)
		}
	})
}
