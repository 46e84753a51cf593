package robfigcron_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/recipes/robfigcron"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJobRunsOnceForEachTime has three machines, with jobs that end at once, and with
// jobs that end shortly before the next.
func TestJobRunsOnceForEachTime(t *testing.T) {
	for _, work := range []time.Duration{time.Second, 19 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.NewStore()
			var mu sync.Mutex
			times, elsewhere := map[time.Time]int{}, 0
			var clients []*holdfast.Client
			var crons []*cron.Cron
			for range 3 {
				locks, err := holdfast.New(memlock.New(store))
				if err != nil {
					t.Fatal(err)
				}
				c := cron.New(cron.WithLocation(time.UTC))
				err = robfigcron.Add(t.Context(), c, locks, "report", "*/20 * * * *", func(context.Context) error {
					time.Sleep(work)
					return nil
				}, func(done holdfast.Done, err error) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err != nil:
						t.Error(err)
					case done.Here:
						times[done.Slot]++
					default:
						elsewhere++
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				c.Start()
				clients, crons = append(clients, locks), append(crons, c)
			}
			time.Sleep(10*time.Hour + time.Minute)
			for _, c := range crons {
				<-c.Stop().Done()
			}
			for _, locks := range clients {
				if err := locks.Close(); err != nil {
					t.Error(err)
				}
			}
			if len(times) != 30 || elsewhere != 60 {
				t.Errorf("%v: %d times done, %d elsewhere: %v", work, len(times), elsewhere, times)
			}
			for at, n := range times {
				if n != 1 || at.Minute()%20 != 0 || at.Second() != 0 {
					t.Errorf("%s: %d runs", at, n)
				}
			}
		})
	}
}

func TestAddRefusesBadSchedule(t *testing.T) {
	if err := robfigcron.Add(t.Context(), cron.New(), nil, "report", "every day", nil, nil); err == nil {
		t.Error("a bad schedule was taken")
	}
}
