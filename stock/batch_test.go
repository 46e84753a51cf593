package stock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowBackend carries out each sale after some time, like a server at a
// distance, and notes how many sales each call had.
type slowBackend struct {
	backend
	takes  time.Duration
	silent bool // calls of several sales end with their context alone
	lose   bool // the answer of the next call of several sales is lost

	mu        sync.Mutex
	alone     int
	batches   []int
	cancelled int
}

func (b *slowBackend) ask(ctx context.Context, at shard, q request) (answer, error) {
	if q.isUsual() {
		b.mu.Lock()
		b.alone++
		b.mu.Unlock()
		time.Sleep(b.takes)
	}
	return b.backend.ask(ctx, at, q)
}

func (b *slowBackend) sell(ctx context.Context, at shard, sales []*batchedSale) error {
	b.mu.Lock()
	b.batches = append(b.batches, len(sales))
	silent, lose := b.silent, b.lose
	b.lose = false
	b.mu.Unlock()
	if silent {
		<-ctx.Done()
		b.mu.Lock()
		b.cancelled++
		b.mu.Unlock()
		return errLost
	}
	time.Sleep(b.takes)
	err := b.backend.sell(ctx, at, sales)
	if err == nil && lose {
		return errLost
	}
	return err
}

// inSlowStock runs f in a bubble, with a product of so many units in one shard
// whose server needs 100 µs for a call.
func inSlowStock(t *testing.T, units int64, f func(t *testing.T, s *Stock, b *slowBackend)) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowBackend{backend: newMemory(1), takes: 100 * time.Microsecond}
		s, err := open(b, nil)
		must(t, err)
		defer s.Close()
		must(t, s.Set(t.Context(), "phone", units, 1))
		_, err = s.Total(t.Context(), "phone")
		must(t, err)
		f(t, s, b)
	})
}

// TestSalesShareCalls checks how many calls sales need that arrive together: the
// first goes alone, and the others in batches of at most maxBatch.
func TestSalesShareCalls(t *testing.T) {
	inSlowStock(t, 1000, func(t *testing.T, s *Stock, b *slowBackend) {
		var all sync.WaitGroup
		for i := range 121 {
			all.Go(func() {
				r, err := s.Sell(t.Context(), "phone", 2, fmt.Sprint("order-", i))
				if err != nil || r != (Receipt{Sold, 2}) {
					t.Errorf("order %d: %v, %v", i, r, err)
				}
			})
		}
		all.Wait()
		if b.alone != 1 || fmt.Sprint(b.batches) != "[50 50 20]" {
			t.Errorf("%d calls of one sale and %v of several, not 1 and [50 50 20]", b.alone, b.batches)
		}
		if total, err := s.Total(t.Context(), "phone"); err != nil || total.Sold != 242 || total.Least != 758 {
			t.Errorf("%+v, %v", total, err)
		}
	})
}

// TestBatchWaitsNotForASlowCall checks that a sale is sent after maxLinger although
// the call before it has no answer.
func TestBatchWaitsNotForASlowCall(t *testing.T) {
	inSlowStock(t, 1000, func(t *testing.T, s *Stock, b *slowBackend) {
		b.takes = time.Second
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				began := time.Now()
				_, err := s.Sell(t.Context(), "phone", 1, fmt.Sprint("order-", i))
				if took := time.Since(began); err != nil || took > time.Second+maxLinger {
					t.Errorf("order %d: %v after %v", i, err, took)
				}
			})
		}
		all.Wait()
	})
}

// TestSalesOfABatchAreApart checks that a sale that falls short, is repeated or
// was reserved does not disturb the others of its batch.
func TestSalesOfABatchAreApart(t *testing.T) {
	inSlowStock(t, 100, func(t *testing.T, s *Stock, b *slowBackend) {
		ctx := t.Context()
		_, err := s.Sell(ctx, "phone", 3, "old")
		must(t, err)
		_, err = s.Reserve(ctx, "phone", 4, "reserved", time.Minute)
		must(t, err)
		var all sync.WaitGroup
		sell := func(id string, units int64, want error) {
			all.Go(func() {
				if r, err := s.Sell(ctx, "phone", units, id); !errors.Is(err, want) || want == nil && r.Units != units {
					t.Errorf("%s: %v, %v", id, r, err)
				}
			})
			synctest.Wait()
		}
		sell("alone", 1, nil)
		sell("a", 10, nil)
		sell("too-many", 95, ErrSoldOut)
		sell("old", 3, nil)
		sell("reserved", 4, ErrConflict)
		sell("b", 20, nil)
		sell("b", 20, nil)
		all.Wait()
		if fmt.Sprint(b.batches) != "[6]" {
			t.Errorf("calls of %v sales, not of [6]", b.batches)
		}
		if total, err := s.Total(ctx, "phone"); err != nil || total.Sold != 34 || total.Reserved != 4 || total.Least != 66 {
			t.Errorf("%+v, %v", total, err)
		}
	})
}

// TestLostAnswerOfABatch checks that all sales of a batch whose answer is lost
// are repeated by id, and that none sells twice.
func TestLostAnswerOfABatch(t *testing.T) {
	inSlowStock(t, 100, func(t *testing.T, s *Stock, b *slowBackend) {
		b.lose = true
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if _, err := s.Sell(t.Context(), "phone", 1, fmt.Sprint("order-", i)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if b.lose {
			t.Error("no answer was lost")
		}
		if total, err := s.Total(t.Context(), "phone"); err != nil || total.Sold != 10 || total.Least != 90 {
			t.Errorf("%+v, %v", total, err)
		}
	})
}

// TestGivenUpSales checks what becomes of sales whose context ends: before their
// batch is sent, they are certainly not carried out; later, nobody knows. A call
// in which nobody is interested any more is cancelled.
func TestGivenUpSales(t *testing.T) {
	inSlowStock(t, 100, func(t *testing.T, s *Stock, b *slowBackend) {
		b.takes, b.silent = time.Second, true
		var all sync.WaitGroup
		sell := func(id string, want error) (giveUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if _, err := s.Sell(ctx, "phone", 1, id); !errors.Is(err, want) {
					t.Errorf("%s: %v, not %v", id, err, want)
				}
			})
			synctest.Wait()
			return func() { cancel(); synctest.Wait() }
		}
		sell("alone", nil)
		sent, too := sell("sent", ErrUnknown), sell("sent-too", ErrUnknown)
		time.Sleep(maxLinger)
		synctest.Wait()
		sell("not-sent", ErrUnavailable)()
		sent()
		if b.cancelled != 0 {
			t.Error("a call that somebody waits for was cancelled")
		}
		too()
		all.Wait()
		if fmt.Sprint(b.batches) != "[2]" || b.cancelled != 1 {
			t.Errorf("calls of %v sales, %d cancelled, not of [2], 1 cancelled", b.batches, b.cancelled)
		}
	})
}

// TestCloseEndsBatches checks that sales in a batch end when the client is closed.
func TestCloseEndsBatches(t *testing.T) {
	inSlowStock(t, 100, func(t *testing.T, s *Stock, b *slowBackend) {
		b.takes, b.silent = time.Second, true
		var all sync.WaitGroup
		all.Go(func() { _, _ = s.Sell(t.Context(), "phone", 1, "alone") })
		synctest.Wait()
		all.Go(func() {
			if _, err := s.Sell(t.Context(), "phone", 1, "sent"); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
		time.Sleep(2 * maxLinger)
		s.Close()
		all.Wait()
	})
}

// TestBatchesOnServersAndInMemoryAgree sells the same random batches in memory and
// in another store. Ids repeat, units run out, some ids are reserved, and some
// batches are of another epoch or of a shard that is not there.
func TestBatchesOnServersAndInMemoryAgree(t *testing.T) {
	for _, at := range []struct {
		place
		rounds, most int
	}{{onRedis, 20, maxBatch}, {onPostgres, 2, sqlBatch}, {onMariaDB, 2, sqlBatch}} {
		t.Run(at.name, func(t *testing.T) {
			for range at.rounds {
				testBatchesAgree(t, at.open(t)(t, nil).sender.backend, at.most)
			}
		})
	}
}

func testBatchesAgree(t *testing.T, remote backend, most int) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	both := []backend{newMemory(remote.servers()), remote}
	var stocks []*Stock
	for _, b := range both {
		s, err := open(b, nil)
		must(t, err)
		defer s.Close()
		must(t, s.Set(t.Context(), "phone", 500, 1))
		_, err = s.Reserve(t.Context(), "phone", 5, "id-0", time.Hour)
		must(t, err)
		stocks = append(stocks, s)
	}
	k, err := stocks[0].directories.readFinished(t.Context(), "phone")
	must(t, err)
	for range 40 {
		at := k.shard("phone", 0)
		epoch := int64(1)
		switch rnd.IntN(20) {
		case 0:
			at.sku = "absent"
		case 1:
			epoch = 2
		}
		var sales []*batchedSale
		for range 1 + rnd.IntN(most) {
			sales = append(sales, &batchedSale{request: request{op: opSell, sale: fmt.Sprint("id-", rnd.IntN(300)), units: 1 + rnd.Int64N(9),
				epoch: epoch, keep: time.Hour.Milliseconds()}})
		}
		mirror := copies(sales)
		must(t, both[0].sell(t.Context(), at, sales))
		must(t, both[1].sell(t.Context(), at, mirror))
		for i, s := range sales {
			if m := mirror[i]; fmt.Sprint(s.answer) != fmt.Sprint(m.answer) {
				t.Fatalf("seed %d: sale %d of %d, %+v: %+v in memory, %+v there", seed, i, len(sales), s.request, s.answer, m.answer)
			}
		}
	}
	a, err := stocks[0].Total(t.Context(), "phone")
	must(t, err)
	b, err := stocks[1].Total(t.Context(), "phone")
	must(t, err)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Fatalf("seed %d: %+v in memory, %+v there", seed, a, b)
	}
}
