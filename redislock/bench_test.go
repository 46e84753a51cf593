package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

const benchMeta = `{"h":"worker-17.example.internal","p":23817,"t":1798000000000,"n":"nightly invoice run"}`

func benchTicket(n int) *driver.Ticket {
	return &driver.Ticket{
		ID: fmt.Sprintf("9b2e4e9e-5b5a-4c8e-9a59-0b6f2c7d1e11:%d", n), Name: "invoice/42",
		Units: 1, Limit: 1, TTL: 30 * time.Second, Meta: benchMeta,
	}
}

// command runs a script on a queue.
func command(s *wire.Script, b rueidis.Builder, l *wire.QueueKeys, args []string) rueidis.Completed {
	return b.Arbitrary("EVALSHA", s.SHA, strconv.Itoa(len(l.All()))).Keys(l.All()...).Args(args...).Build()
}

// BenchmarkUncontended takes and releases a lock that no other client wants.
// Its base sends the same two scripts, with arguments that never change, on
// the client itself. A second comparison is the simplest possible lock.
//
// Each is measured in turns of a few hundred, so that other load of the
// machine affects all alike.
func BenchmarkUncontended(b *testing.B) {
	s := servers.Redis(b, servers.RedisOptions{})
	d := openOn(b, s, "")
	plain, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	bg := context.Background()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}

	tickets := make([]*driver.Ticket, 1000)
	for i := range tickets {
		tickets[i] = benchTicket(i)
	}
	refs := make([]driver.Ref, 1)
	lock := func(ctx context.Context, i int) {
		t := tickets[i%len(tickets)]
		p, err := d.Join(ctx, t, true)
		if err != nil || p.State != driver.Held {
			b.Fatal(p, err)
		}
		refs[0] = driver.Ref{Ticket: t, State: driver.Held}
		ps, err := d.Leave(ctx, refs)
		if err != nil || ps[0].State != driver.Held {
			b.Fatal(ps, err)
		}
	}
	fixed := benchTicket(0)
	l := wire.NewQueueKeys("holdfast:", "fixed")
	joinArgs := []string{fixed.ID, "31200", d.server.Channel, fixed.Meta, "1"}
	leaveArgs := []string{fixed.ID, "1"}
	long, cancel := context.WithCancel(bg)
	defer cancel()

	variants := []struct {
		name string
		run  func(i int)
		took []time.Duration
	}{
		{name: "same-scripts", run: func(int) {
			must(plain.Do(bg, command(plainScripts.Join, plain.B(), l, joinArgs)).Error())
			must(plain.Do(bg, command(plainScripts.Leave, plain.B(), l, leaveArgs)).Error())
		}},
		{name: "background", run: func(i int) { lock(bg, i) }},
		{name: "cancellable", run: func(i int) { lock(long, i) }},
		{name: "setnx", run: func(int) {
			must(plain.Do(bg, plain.B().Set().Key("setnx").Value(fixed.ID).Nx().PxMilliseconds(30000).Build()).Error())
			must(setnxRelease.Exec(bg, plain, []string{"setnx"}, []string{fixed.ID}).Error())
		}},
	}
	lock(bg, 0) // the server learns the scripts
	const turn = 200
	for i := 0; b.Loop(); i++ {
		for j := range variants {
			v := &variants[j]
			begun := time.Now()
			for k := range turn {
				v.run(i*turn + k)
			}
			v.took = append(v.took, time.Since(begun)/turn)
		}
	}
	base, setnx := median(variants[0].took), median(variants[3].took)
	for _, v := range variants {
		b.ReportMetric(median(v.took)/1e3, "us/"+v.name)
	}
	b.ReportMetric(median(variants[1].took)/base, "ratio-background")
	b.ReportMetric(median(variants[2].took)/base, "ratio-cancellable")
	b.ReportMetric(median(variants[2].took)/setnx, "ratio-to-setnx")
	b.ReportMetric(0, "ns/op") // without meaning here
	b.ReportMetric(testing.AllocsPerRun(1000, func() { lock(bg, 0) }), "allocs-background")
	b.ReportMetric(testing.AllocsPerRun(1000, func() { lock(long, 0) }), "allocs-cancellable")
	b.ReportMetric(testing.AllocsPerRun(1000, func() { variants[0].run(0) }), "allocs-same-scripts")
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}

var setnxRelease = rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
