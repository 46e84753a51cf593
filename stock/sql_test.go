package stock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// database is a server for tests of what only databases have.
type database struct {
	name       string
	driverName string
	address    func(user string) string
	exec       func(testing.TB, ...string)
	value      func(testing.TB, string) int64
	crash      func(testing.TB)
}

func postgresAt(s *servers.PostgresServer) database {
	return database{"postgres", "pgx", func(user string) string { return s.URL(user, "sslmode=disable") }, s.Exec, s.Value, s.Crash}
}

func mariaDBOn(s *servers.MariaDBServer) database {
	return database{"mariadb", "mysql", func(user string) string { return strings.Replace(mariaDBAt(s, "locks"), "holdfast:", user+":", 1) },
		s.Exec, s.Value, s.Crash}
}

// admin is the user of a database who may do everything.
func (d database) admin() string {
	return map[string]string{"postgres": "postgres", "mariadb": "holdfast"}[d.name]
}

func (d database) open(t testing.TB, user string, o *Options) (*Stock, error) {
	t.Helper()
	s, err := NewSQL(t.Context(), o, pool(t, d.driverName, d.address(user)))
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func onDatabases(t *testing.T, test func(t *testing.T, d database)) {
	for _, open := range []func() database{
		func() database { return postgresAt(servers.SharedPostgres(t)) },
		func() database { return mariaDBOn(servers.SharedMariaDB(t)) },
	} {
		d := open()
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

// TestTablesOfAnAdministrator runs the output of Schema as an administrator. A user
// who may not create tables sells with them, and without them, or without rights
// on them, is told what is missing.
func TestTablesOfAnAdministrator(t *testing.T) {
	onDatabases(t, func(t *testing.T, d database) {
		o := &Options{Prefix: own()}
		if d.name == "postgres" {
			d.exec(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC") // as it is from version 15 on
		}
		refused := func(why string) {
			t.Helper()
			if s, err := d.open(t, "app", o); err == nil {
				err = s.Set(t.Context(), "x", 3, 1)
				if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), why) {
					t.Errorf("it says %v, and not %q", err, why)
				}
			} else if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), servers.MariaDBPassword) {
				t.Errorf("it says %v, and not %q", err, why)
			}
		}
		if d.name == "mariadb" {
			refused("this user needs SELECT, INSERT, UPDATE and DELETE")
			d.exec(t, "GRANT SELECT ON locks.* TO app@'%'")
		}
		refused("run the output of stock.Schema")
		if d.name == "mariadb" {
			d.exec(t, "REVOKE SELECT ON locks.* FROM app@'%'")
		}
		text, err := Schema(o, d.name)
		must(t, err)
		var grants []string
		for _, line := range strings.Split(text, "\n") {
			line = strings.TrimSuffix(line, ";")
			if grant, ok := strings.CutPrefix(line, "-- GRANT "); ok {
				if d.name == "mariadb" {
					grant = strings.Replace(strings.Replace(grant, " ON ", " ON locks.", 1), "TO app", "TO app@'%'", 1)
				}
				grants = append(grants, "GRANT "+grant)
			} else if line != "" && !strings.HasPrefix(line, "--") {
				if d.name == "mariadb" {
					line = strings.NewReplacer("EXISTS "+o.Prefix, "EXISTS locks."+o.Prefix, "INTO "+o.Prefix, "INTO locks."+o.Prefix, "FROM "+o.Prefix, "FROM locks."+o.Prefix).Replace(line)
				}
				d.exec(t, line)
			}
		}
		refused("this user needs SELECT, INSERT, UPDATE and DELETE")
		for _, grant := range grants {
			d.exec(t, strings.Replace(grant, "INSERT, ", "", 1))
		}
		refused("this user needs SELECT, INSERT, UPDATE and DELETE")
		for _, grant := range grants {
			d.exec(t, grant)
		}
		s, err := d.open(t, "app", o)
		must(t, err)
		must(t, s.Set(t.Context(), "x", 3, 1))
		must(t, second(s.Sell(t.Context(), "x", 1, "a")))
		count(t, s, "x", 3, 2)
	})
}

// TestOtherLayoutIsRefused checks that a client does not use tables of another
// layout.
func TestOtherLayoutIsRefused(t *testing.T) {
	onDatabases(t, func(t *testing.T, d database) {
		o := &Options{Prefix: own()}
		_, err := d.open(t, d.admin(), o)
		must(t, err)
		_, err = pool(t, d.driverName, d.address(d.admin())).ExecContext(t.Context(), "UPDATE "+o.Prefix+"layout SET layout = 2")
		must(t, err)
		if _, err := d.open(t, d.admin(), o); driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "have layout 2, and this version needs layout 1") {
			t.Errorf("tables of layout 2: %v", err)
		}
	})
}

// TestTablesWithoutALayoutAreCompleted checks that a client which finds the tables as
// another one leaves them before its last statement goes on.
func TestTablesWithoutALayoutAreCompleted(t *testing.T) {
	onDatabases(t, func(t *testing.T, d database) {
		o := &Options{Prefix: own()}
		db := pool(t, d.driverName, d.address(d.admin()))
		for range 2 {
			s, err := NewSQL(t.Context(), o, db)
			must(t, err)
			must(t, s.Close())
			_, err = db.ExecContext(t.Context(), "DELETE FROM "+o.Prefix+"layout")
			must(t, err)
		}
	})
}

// TestTablesAreMadeOnce opens many clients at once where there are no tables.
func TestTablesAreMadeOnce(t *testing.T) {
	onDatabases(t, func(t *testing.T, d database) {
		db, o := pool(t, d.driverName, d.address(d.admin())), &Options{Prefix: own()}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				s, err := NewSQL(t.Context(), o, db)
				if err == nil {
					err = errors.Join(s.Set(t.Context(), "x", 3, 2), s.Close())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var layouts int
		must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+o.Prefix+"layout").Scan(&layouts))
		if layouts != 1 {
			t.Errorf("there are %d layouts", layouts)
		}
	})
}

// TestBadDatabases checks what NewSQL and Schema refuse.
func TestBadDatabases(t *testing.T) {
	if _, err := NewSQL(t.Context(), nil); err == nil {
		t.Error("no database is accepted")
	}
	if _, err := NewSQL(t.Context(), nil, nil); err == nil {
		t.Error("nil is accepted")
	}
	db := pool(t, "pgx", "postgres://app:secret@127.0.0.1:1/x?sslmode=disable")
	if _, err := NewSQL(t.Context(), nil, db); driver.ClassOf(err) != driver.Unavailable || strings.Contains(fmt.Sprint(err), "secret") {
		t.Errorf("no server is there: %v", err)
	}
	for _, prefix := range []string{"a-b", "A", "1x", "x;", strings.Repeat("x", 33)} {
		if _, err := NewSQL(t.Context(), &Options{Prefix: prefix}, db); err == nil || !strings.Contains(err.Error(), "prefix") {
			t.Errorf("prefix %q: %v", prefix, err)
		}
		if _, err := Schema(&Options{Prefix: prefix}, "mysql"); err == nil {
			t.Errorf("prefix %q has a schema", prefix)
		}
	}
	if _, err := Schema(nil, "oracle"); err == nil {
		t.Error("oracle has a schema")
	}
}

// TestAnyTextIsAnID sells under ids, and products, whose texts mean something to
// databases.
func TestAnyTextIsAnID(t *testing.T) {
	texts := []string{"'", `\`, `\'; DROP TABLE x; --`, "a\x00b", "?", "$1", "A", "a", "a ", "ä", "a\u0308", "%_", strings.Repeat("é", 128)}
	for _, p := range []place{onMemory(1), onPostgres, onMariaDB} {
		t.Run(p.name, func(t *testing.T) {
			s := p.open(t)(t, nil)
			for _, sku := range texts {
				must(t, s.Set(t.Context(), sku, 100, 1))
			}
			for i, id := range texts {
				must(t, second(s.Sell(t.Context(), texts[(i+3)%len(texts)], int64(i+1), id)))
			}
			for i, id := range texts {
				r, err := s.Receipt(t.Context(), texts[(i+3)%len(texts)], id)
				if err != nil || r != (Receipt{Sold, int64(i + 1)}) {
					t.Errorf("%q: %v, %v", id, r, err)
				}
				count(t, s, texts[(i+3)%len(texts)], 100, 99-int64(i))
			}
		})
	}
}

// TestStandingClientLetsGo has a client stop amid a transaction, with a shard's row
// locked. The server ends its transaction, and a sale of another client is made
// within its Patience.
func TestStandingClientLetsGo(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, d database, kind *dialect) {
		t.Parallel()
		o := &Options{Prefix: own()}
		s, err := d.open(t, d.admin(), o)
		must(t, err)
		b := s.sender.backend.(*sqlServers)
		if kind != nil {
			b.conns[0].discardFree()
			b.conns[0].kind = kind
		}
		must(t, s.Set(t.Context(), "x", 3, 1))
		c, err := b.conns[0].conn(t.Context())
		must(t, err)
		defer discard(c.Conn)
		_, err = b.readShard(t.Context(), c, shard{sku: "x"}, readAll, "a")
		must(t, err)
		began := time.Now()
		must(t, second(s.Sell(t.Context(), "x", 1, "a")))
		if took := time.Since(began); took < standstill/2 {
			t.Errorf("the row was not locked: the sale took %v", took)
		}
		count(t, s, "x", 3, 2)
	}
	onDatabases(t, func(t *testing.T, d database) { test(t, d, nil) })
	// MySQL's own way works on MariaDB, too.
	t.Run("mysql", func(t *testing.T) { test(t, mariaDBOn(servers.SharedMariaDB(t)), mysql) })
}

// TestOldReceiptsGo checks that sales delete the receipts that have ended.
func TestOldReceiptsGo(t *testing.T) {
	onDatabases(t, func(t *testing.T, d database) {
		db, o := pool(t, d.driverName, d.address(d.admin())), &Options{Prefix: own(), Keep: time.Second}
		s, err := NewSQL(t.Context(), o, db)
		must(t, err)
		defer s.Close()
		must(t, s.Set(t.Context(), "x", MaxUnits, 1))
		n := 0
		sell := func() {
			var sales []*batchedSale
			for range sqlBatch {
				n++
				sales = append(sales, &batchedSale{request: request{op: opSell, sale: fmt.Sprint(n), units: 1, epoch: 1, keep: 1000}})
			}
			must(t, s.sender.backend.sell(t.Context(), shard{sku: "x"}, sales))
		}
		for range 10 {
			sell()
		}
		time.Sleep(time.Second)
		var left int
		for end := time.Now().Add(20 * time.Second); left == 0 || left > n-5*sqlBatch; {
			if time.Now().After(end) {
				t.Fatalf("%d receipts of %d sales are left", left, n)
			}
			sell()
			must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+o.Prefix+"receipt").Scan(&left))
		}
		count(t, s, "x", MaxUnits, MaxUnits-int64(n))
	})
}

// TestManyBasketsLapse checks that all reservations that have lapsed are on sale
// again, however many they are.
func TestManyBasketsLapse(t *testing.T) {
	for _, p := range []place{onPostgres, onMariaDB} {
		t.Run(p.name, func(t *testing.T) {
			s := p.open(t)(t, &Options{SoldOutFor: -1})
			must(t, s.Set(t.Context(), "x", 300, 1))
			for i := range 60 {
				must(t, second(s.Reserve(t.Context(), "x", 5, fmt.Sprint(i), 100*time.Millisecond)))
			}
			for end := time.Now().Add(20 * time.Second); ; {
				_, err := s.Sell(t.Context(), "x", 300, "all")
				if err == nil {
					break
				}
				if !errors.Is(err, ErrSoldOut) || time.Now().After(end) {
					t.Fatal(err)
				}
			}
			if r, err := s.Receipt(t.Context(), "x", "7"); err != nil || r != (Receipt{Lapsed, 5}) {
				t.Errorf("a basket that has lapsed: %v, %v", r, err)
			}
			count(t, s, "x", 300, 0)
		})
	}
}

// TestConcurrentSalesInDatabases sells from many goroutines of several clients, on
// stores that lose requests and answers, while the number of shards changes.
// Transactions wait for each other and are undone, and the numbers add up.
func TestConcurrentSalesInDatabases(t *testing.T) {
	for _, p := range []place{onPostgres, onMariaDB} {
		t.Run(p.name, func(t *testing.T) {
			const units, clients, each, sales = 300, 3, 16, 10
			client := p.open(t)
			clean := client(t, &Options{SoldOutFor: -1, Patience: 20 * time.Second})
			must(t, clean.Set(t.Context(), "x", units, 3))
			var all sync.WaitGroup
			said := make([]map[string]error, clients*each)
			for c := range clients {
				s := client(t, &Options{SoldOutFor: -1, Patience: 20 * time.Second})
				s.sender.backend = &flakyBackend{backend: s.sender.backend, rate: 0.05, rand: rand.New(rand.NewPCG(1, uint64(c)))}
				for g := range each {
					said[c*each+g] = map[string]error{}
					all.Go(func() {
						for i := range sales {
							id := fmt.Sprint(c/2, "/", g, "/", i) // two clients use the same
							err := ErrUnavailable
							for errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) {
								_, err = s.Sell(t.Context(), "x", int64(1+(g+i)%3), id)
							}
							said[c*each+g][id] = err
							if g == 0 && i%5 == 4 {
								_ = s.Rebalance(t.Context(), "x", 1+(c+i)%5) // it may meet another
							}
						}
					})
				}
			}
			all.Wait()
			var sold int64
			seen := map[string]bool{}
			for _, calls := range said {
				for id, err := range calls {
					r, e := clean.Receipt(t.Context(), "x", id)
					if e != nil && !errors.Is(e, ErrNoSale) || err == nil && r.State != Sold || err != nil && !errors.Is(err, ErrSoldOut) {
						t.Errorf("of %s it was said %v, and it is %v, %v", id, err, r, e)
					}
					if r.State == Sold && !seen[id] {
						seen[id] = true
						sold += r.Units
					}
				}
			}
			count(t, clean, "x", units, units-sold)
			if sold < units-3 {
				t.Errorf("%d of %d were sold", sold, units)
			}
		})
	}
}

// TestSalesOutliveACrashedServer kills a database amid sales, which writes every
// commit to the disk. When it is back, each sale that was answered is there, each
// other is repeated, and no unit is lost.
func TestSalesOutliveACrashedServer(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) database{
		func(t *testing.T) database { return postgresAt(servers.Postgres(t, servers.PostgresOptions{})) },
		func(t *testing.T) database { return mariaDBOn(servers.MariaDB(t, servers.MariaDBOptions{})) },
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			d := open(t)
			db := pool(t, d.driverName, d.address(d.admin()))
			s, err := NewSQL(t.Context(), &Options{Patience: 30 * time.Second, SoldOutFor: -1}, db)
			must(t, err)
			defer s.Close()
			const units, buyers, each = 4000, 16, 60
			must(t, s.Set(t.Context(), "x", units, 2))
			reached := make(chan struct{}, buyers*each)
			var all sync.WaitGroup
			for b := range buyers {
				all.Go(func() {
					for i := range each {
						if _, err := s.Sell(t.Context(), "x", 2, fmt.Sprint(b, "/", i)); err != nil {
							t.Error(err)
						}
						reached <- struct{}{}
					}
				})
			}
			for range buyers * each / 4 {
				<-reached
			}
			d.crash(t)
			all.Wait()
			count(t, s, "x", units, units-2*buyers*each)
		})
	}
}
