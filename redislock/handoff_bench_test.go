package redislock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// The simplest scripts for a queue and a hand-off: no deadlines, no tokens, no
// metadata, no repeated requests.
const (
	leastJoin = `if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
		redis.call('RPUSH', KEYS[2], ARGV[1]) return 0`
	leastLeave = `local next = redis.call('LPOP', KEYS[2])
		if not next then return redis.call('DEL', KEYS[1]) end
		redis.call('SET', KEYS[1], next, 'PX', ARGV[2])
		return redis.call('PUBLISH', next, 'held')`
)

// BenchmarkHandOff passes a lock around between clients that all want it, and
// compares the rate with that of the simplest scripts, in turns.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{2, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := servers.Redis(b, servers.RedisOptions{})
			var ours, least []func()
			for i := range n {
				ours = append(ours, oursTurn(b, s))
				least = append(least, leastTurn(b, s, fmt.Sprint("c", i)))
			}
			const turns = 300
			run := func(clients []func()) time.Duration {
				var wg sync.WaitGroup
				begun := time.Now()
				for _, turn := range clients {
					wg.Go(func() {
						for range turns {
							turn()
						}
					})
				}
				wg.Wait()
				return time.Since(begun) / time.Duration(turns*n)
			}
			run(ours)
			run(least)
			s.Do(b, "CONFIG", "RESETSTAT")
			var a, z []time.Duration
			for b.Loop() {
				a = append(a, run(ours))
				z = append(z, run(least))
			}
			b.ReportMetric(0, "ns/op") // without meaning here
			b.ReportMetric(median(a)/1e3, "us/ours")
			b.ReportMetric(median(z)/1e3, "us/least")
			b.ReportMetric(median(z)/median(a), "rate-ratio")
		})
	}
}

func oursTurn(b *testing.B, s *servers.RedisServer) func() {
	d := openOn(b, s, "")
	granted := make(chan string, 4)
	if err := d.Watch(context.Background(), func(id string, p driver.Status) { granted <- id }); err != nil {
		b.Fatal(err)
	}
	m := quiet(b, d)
	long, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	return func() {
		t := m.ticket("n")
		t.Meta = benchMeta
		p, err := d.Join(long, t, true)
		if err != nil {
			b.Error(err)
			return
		}
		for p.State != driver.Held {
			if <-granted == t.ID {
				break
			}
		}
		if ps, err := d.Leave(long, []driver.Ref{ref(t)}); err != nil || ps[0].State != driver.Held {
			b.Error(ps, err)
		}
	}
}

func leastTurn(b *testing.B, s *servers.RedisServer, name string) func() {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: -1,
		ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10, RingScaleEachConn: 8,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	bg := context.Background()
	granted := make(chan struct{}, 4)
	conn, _ := c.Dedicate()
	b.Cleanup(conn.Close)
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) { granted <- struct{}{} }})
	if err := conn.Do(bg, conn.B().Subscribe().Channel(name).Build()).Error(); err != nil {
		b.Fatal(err)
	}
	join, leave := rueidis.NewLuaScript(leastJoin), rueidis.NewLuaScript(leastLeave)
	keys, args := []string{"least", "least-queue"}, []string{name, "30000"}
	return func() {
		got, err := join.Exec(bg, c, keys, args).AsInt64()
		if err != nil {
			b.Error(err)
			return
		}
		if got == 0 {
			<-granted
		}
		if err := leave.Exec(bg, c, keys, args).Error(); err != nil {
			b.Error(err)
		}
	}
}
