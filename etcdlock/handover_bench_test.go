package etcdlock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// BenchmarkHandOver measures the time from the call of Unlock to the return of
// another client's Lock, which is certainly waiting. It measures one Delete in
// turns with it, for comparison.
func BenchmarkHandOver(b *testing.B) {
	for _, clients := range []int{2, 4} {
		b.Run(fmt.Sprint(clients, "clients"), func(b *testing.B) { handOver(b, clients) })
	}
}

func handOver(b *testing.B, clients int) {
	s := servers.SharedEtcd(b, servers.EtcdNewest)
	cli := client(b, s, nil)
	var cs []*holdfast.Client
	for range clients {
		cs = append(cs, locks(b, s, "prefix=handover/"))
	}
	name := fmt.Sprint("n", clients)
	var took, deletes []time.Duration
	queue := make([]<-chan *holdfast.Hold, 0, clients)
	times := make(chan time.Time, clients)
	limit := within(b, 10*time.Minute)
	join := func(i int) {
		m := cs[i%clients].Mutex(name)
		ch := make(chan *holdfast.Hold, 1)
		go func() {
			h, err := m.Lock(limit)
			times <- time.Now()
			if err != nil {
				b.Error(err)
			}
			ch <- h
		}()
		queue = append(queue, ch)
	}
	next := 0
	for ; next < clients; next++ {
		join(next)
		waiting(b, cs[0], name, next+1)
	}
	<-times
	h := taken(b, queue[0])
	for b.Loop() {
		queue = queue[1:]
		start := time.Now()
		if err := h.Unlock(); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-times).Sub(start))
		h = taken(b, queue[0])
		join(next)
		next++
		if _, err := cli.Put(ctx, "handover/x", ""); err != nil {
			b.Fatal(err)
		}
		start = time.Now()
		if _, err := cli.Delete(ctx, "handover/x"); err != nil {
			b.Fatal(err)
		}
		deletes = append(deletes, time.Since(start))
		time.Sleep(5 * time.Millisecond) // until the new ticket waits in the queue
	}
	h.Unlock()
	for _, ch := range queue[1:] {
		taken(b, ch).Unlock()
		<-times
	}
	slices.Sort(took)
	slices.Sort(deletes)
	p50, del := took[len(took)/2], deletes[len(deletes)/2]
	b.ReportMetric(float64(p50.Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(del.Microseconds()), "delete-p50-µs")
	b.ReportMetric(float64(p50)/float64(del), "deletes")
}
