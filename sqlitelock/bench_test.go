package sqlitelock

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var modes = map[string]*Options{"full": nil, "normal": {Sync: SyncNormal}}

// BenchmarkUncontended measures a lock and an unlock that meet no other client:
// two transactions. Its naive twin updates a row twice through the same
// library, and shows the cost of the disk and of SQLite themselves.
func BenchmarkUncontended(b *testing.B) {
	ctx := context.Background()
	for name, o := range modes {
		b.Run("lock/"+name, func(b *testing.B) {
			d := openAt(b, filepath.Join(b.TempDir(), "locks.db"), o)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				t := &driver.Ticket{ID: "0192f5c4-5b1c-7cc1-8a67-1f0b8b1b3b1b:" + strconv.Itoa(i), Name: "n", Units: 1, Limit: 1, TTL: time.Minute, Meta: "meta"}
				if p, err := d.Join(ctx, t, true); err != nil || p.State != driver.Held {
					b.Fatal(p, err)
				}
				if ps, err := d.Leave(ctx, held(t)); err != nil || ps[0].State != driver.Held {
					b.Fatal(ps, err)
				}
			}
		})
		b.Run("bare/"+name, func(b *testing.B) {
			d := openAt(b, filepath.Join(b.TempDir(), "locks.db"), o)
			if err := d.worker.conn.exec("CREATE TABLE bare (k BLOB PRIMARY KEY, v TEXT) WITHOUT ROWID"); err != nil {
				b.Fatal(err)
			}
			if err := d.worker.conn.exec("INSERT INTO bare VALUES (x'00', '')"); err != nil {
				b.Fatal(err)
			}
			if err := d.worker.conn.exec("PRAGMA synchronous = " + name); err != nil {
				b.Fatal(err)
			}
			stmt, err := d.worker.conn.c.PrepareContext(ctx, "UPDATE bare SET v = ? WHERE k = ?")
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = stmt.Close() }()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for k := range 2 {
					if _, err := stmt.Exec(strconv.Itoa(2*i+k), []byte{0}); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkParallel measures many goroutines of one client, each with a lock of
// its own: their requests share transactions.
func BenchmarkParallel(b *testing.B) {
	for name, o := range modes {
		b.Run(name, func(b *testing.B) {
			d := openAt(b, filepath.Join(b.TempDir(), "locks.db"), o)
			var n atomic.Int64
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				me := n.Add(1)
				for i := 0; pb.Next(); i++ {
					t := mutex(fmt.Sprintf("%d:%d", me, i), fmt.Sprint("n", me))
					if p, err := d.Join(context.Background(), t, true); err != nil || p.State != driver.Held {
						b.Error(p, err)
						return
					}
					if ps, err := d.Leave(context.Background(), held(t)); err != nil || ps[0].State != driver.Held {
						b.Error(ps, err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkTurns measures two clients, each with its own connection, that take
// turns with one lock.
func BenchmarkTurns(b *testing.B) {
	ctx := context.Background()
	for name, o := range modes {
		b.Run(name, func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "locks.db")
			var ds [2]*Driver
			var told [2]chan struct{}
			for i := range ds {
				ds[i] = openAt(b, path, o)
				told[i] = make(chan struct{}, 1)
				err := ds[i].Watch(ctx, func(id string, _ driver.Status) {
					if id != "" {
						told[i] <- struct{}{}
					}
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			last := mutex("0:0", "n")
			if _, err := ds[0].Join(ctx, last, true); err != nil {
				b.Fatal(err)
			}
			who := 0
			for i := 1; b.Loop(); i++ {
				next := mutex(fmt.Sprintf("%d:%d", 1-who, i), "n")
				if p, err := ds[1-who].Join(ctx, next, true); err != nil || p.State != driver.Waiting {
					b.Fatal(p, err)
				}
				if ps, err := ds[who].Leave(ctx, held(last)); err != nil || ps[0].State != driver.Held {
					b.Fatal(ps, err)
				}
				who, last = 1-who, next
				<-told[who]
			}
		})
	}
}

// BenchmarkRenew measures a round of renewals for 1,000 held locks.
func BenchmarkRenew(b *testing.B) {
	d := openAt(b, filepath.Join(b.TempDir(), "locks.db"), nil)
	var refs []driver.Ref
	for i := range 1000 {
		t := mutex(fmt.Sprint("a:", i), fmt.Sprint("n", i))
		if _, err := d.Join(context.Background(), t, true); err != nil {
			b.Fatal(err)
		}
		refs = append(refs, held(t)...)
	}
	for b.Loop() {
		for i := 0; i < len(refs); i += 200 {
			if ps, err := d.Renew(context.Background(), refs[i:i+200]); err != nil || ps[199].State != driver.Held {
				b.Fatal(ps, err)
			}
		}
	}
}
