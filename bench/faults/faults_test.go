package faults

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var (
	runs = flag.Int("faults.runs", 1, "how often each fault is played")
	all  = flag.Bool("faults.all", false, "with every library on every store, which takes minutes; otherwise with Holdfast on Redis")
	into = flag.String("faults.json", "", "a file for all outcomes")
)

// row is what one contender did under one fault.
type row struct {
	Store, Name, Fault string
	Outcomes           []outcome
}

// TestFaults plays every fault and prints what came of it. It fails for what
// Holdfast is not allowed, and judges nobody else.
func TestFaults(t *testing.T) {
	playing := slices.DeleteFunc(slices.Clone(contenders), func(c contender) bool {
		return !*all && (c.name != "Holdfast" || c.store != "redis")
	})
	at := map[string]place{}
	for _, c := range playing {
		if _, ok := at[c.store]; !ok {
			at[c.store] = places[c.store](t)
		}
	}
	var mu sync.Mutex
	rows := map[string]*row{}
	t.Run("play", func(t *testing.T) {
		for i := range *runs {
			for _, p := range plays {
				for _, c := range playing {
					t.Run(fmt.Sprintf("%s/%s/%d", p.name, c.id(), i), func(t *testing.T) {
						t.Parallel()
						store := at[c.store]
						lock := fmt.Sprintf("n%d%s%s", i, c.store, letters(p.name+c.name))
						o := p.run(&stage{t, func() *program { return run(t, c, store.addr, lock) }, func() { store.forget(t, lock) }})
						t.Logf("%+v", o)
						mu.Lock()
						defer mu.Unlock()
						key := p.name + c.id()
						if rows[key] == nil {
							rows[key] = &row{Store: c.store, Name: c.name, Fault: p.name}
						}
						rows[key].Outcomes = append(rows[key].Outcomes, o)
						if c.name == "Holdfast" && !p.exposed {
							if o.Stale > 0 || o.Told == "late" && o.Late > 100 || o.Told == "never" {
								t.Errorf("Holdfast may not: %+v", o)
							}
						}
					})
				}
			}
		}
	})
	report(os.Stdout, rows)
	if *into != "" {
		sorted := make([]*row, 0, len(rows))
		for _, r := range rows {
			sorted = append(sorted, r)
		}
		slices.SortFunc(sorted, func(a, b *row) int {
			return cmp.Or(cmp.Compare(a.Fault, b.Fault), cmp.Compare(a.Store, b.Store), cmp.Compare(a.Name, b.Name))
		})
		text, err := json.MarshalIndent(sorted, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*into, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s)
}

// place is a store.
type place struct {
	addr   string
	forget func(t *testing.T, lock string)
}

var places = map[string]func(t *testing.T) place{
	"redis": func(t *testing.T) place {
		addr := servers.SharedRedis(t).Addr()
		return place{addr, func(t *testing.T, lock string) {
			c := redis.NewClient(&redis.Options{Addr: addr})
			defer c.Close()
			keys, err := c.Keys(t.Context(), "*"+lock+"*").Result()
			if err != nil || len(keys) == 0 {
				t.Fatalf("keys of the lock: %v, %v", keys, err)
			}
			if err := c.Del(t.Context(), keys...).Err(); err != nil {
				t.Fatal(err)
			}
		}}
	},
	"etcd": func(t *testing.T) place {
		addr := strings.TrimPrefix(servers.SharedEtcd(t, servers.EtcdNewest).Endpoints()[0], "http://")
		return place{addr, func(t *testing.T, lock string) {
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			all, err := c.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range all.Kvs { // the first is that of the holder
				if strings.Contains(string(kv.Key), lock) && kv.Lease != 0 {
					if _, err := c.Revoke(t.Context(), clientv3.LeaseID(kv.Lease)); err != nil {
						t.Fatal(err)
					}
					return
				}
			}
			t.Fatal("nobody has a key")
		}}
	},
	"zookeeper": func(t *testing.T) place {
		addr := servers.SharedZooKeeper(t).Addrs()[0]
		return place{addr, func(t *testing.T, lock string) {
			c, _, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogger(silent{}))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if !unseat(t, c, "/", lock) {
				t.Fatal("nobody has a node")
			}
		}}
	},
}

// unseat deletes the oldest ephemeral node below the lock's.
func unseat(t *testing.T, c *zk.Conn, path, lock string) bool {
	names, _, err := c.Children(path)
	if errors.Is(err, zk.ErrNoNode) { // of another play, over by now
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	oldest, oldestAt := "", int64(0)
	for _, n := range names {
		if n == "zookeeper" && path == "/" {
			continue
		}
		child := strings.TrimSuffix(path, "/") + "/" + n
		if strings.Contains(path, lock) {
			_, s, err := c.Get(child)
			if err == nil && s.EphemeralOwner != 0 && (oldest == "" || s.Czxid < oldestAt) {
				oldest, oldestAt = child, s.Czxid
			}
			continue
		}
		if unseat(t, c, child, lock) {
			return true
		}
	}
	return oldest != "" && c.Delete(oldest, -1) == nil
}

// report prints a table for each fault.
func report(w io.Writer, rows map[string]*row) {
	fmt.Fprintf(w, "\n%s, %s/%s, %d processors", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, d := range b.Deps {
			for _, p := range []string{"redsync", "redislock", "rueidis", "etcd/client/v3", "go-zookeeper"} {
				if strings.Contains(d.Path, p) {
					fmt.Fprintf(w, "; %s %s", d.Path, d.Version)
				}
			}
		}
	}
	fmt.Fprintln(w)
	for _, p := range plays {
		fmt.Fprintf(w, "\n%s (%s): %s\n\n", p.name, p.fault, p.what)
		fmt.Fprintln(w, "| | runs | stale writes in | overlap, ms | told of the loss | late by, ms | next grant after, ms | |")
		fmt.Fprintln(w, "|---|--:|--:|--:|---|--:|--:|---|")
		for _, c := range contenders {
			if r := rows[p.name+c.id()]; r != nil {
				fmt.Fprintln(w, r.line())
			}
		}
	}
}

func (r *row) line() string {
	var stale, kept int
	var overlap, late, took []float64
	says, notes := map[string]int{}, map[string]int{}
	for _, o := range r.Outcomes {
		if o.Stale > 0 {
			stale++
			overlap = append(overlap, o.Overlap)
		}
		if o.Told != "" {
			says[o.Told]++
		}
		if o.Told == "late" {
			late = append(late, o.Late)
		}
		if o.Kept {
			kept++
		} else if o.Took != never && o.Took != 0 {
			took = append(took, o.Took)
		}
		if o.Note != "" {
			notes[o.Note]++
		}
	}
	if kept > 0 {
		notes["kept"] = kept
	}
	return fmt.Sprintf("| %s, %s | %d | %d | %s | %s | %s | %s | %s |", r.Name, r.Store, len(r.Outcomes), stale,
		span(overlap), counts(says), span(late), span(took), counts(notes))
}

// span is the least, the middle and the greatest.
func span(xs []float64) string {
	if len(xs) == 0 {
		return ""
	}
	slices.Sort(xs)
	return fmt.Sprintf("%.0f / %.0f / %.0f", max(0, xs[0]), max(0, xs[len(xs)/2]), max(0, xs[len(xs)-1]))
}

func counts(of map[string]int) string {
	var parts []string
	for what, n := range of {
		parts = append(parts, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}
