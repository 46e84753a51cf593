package stock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	servers.Main(m)
}

var prefixes atomic.Int64

// own returns a prefix for one test.
func own() string { return fmt.Sprintf("t%d_", prefixes.Add(1)) }

// A place is a store for the tests.
type place struct {
	name string
	// open returns a function that creates clients of one store.
	open func(t testing.TB) func(testing.TB, *Options) *Stock
}

func onMemory(n int) place {
	return place{fmt.Sprintf("memory%d", n), func(testing.TB) func(testing.TB, *Options) *Stock {
		m := newMemory(n)
		return func(t testing.TB, o *Options) *Stock { return over(t, m, o) }
	}}
}

func over(t testing.TB, b backend, o *Options) *Stock {
	t.Helper()
	s, err := open(b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// ownPlace gives the stock of each test its own prefix, on the servers that each of its
// clients is opened with.
func ownPlace[S any](name string, at func(testing.TB) []S, open func(context.Context, *Options, ...S) (*Stock, error)) place {
	return place{name, func(t testing.TB) func(testing.TB, *Options) *Stock {
		prefix, servers := own(), at(t)
		return func(t testing.TB, o *Options) *Stock {
			t.Helper()
			opts := Options{Prefix: prefix}
			if o != nil {
				opts = *o
				opts.Prefix = prefix
			}
			s, err := open(t.Context(), &opts, servers...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
	}}
}

// onURLs is the place of servers of Redis.
func onURLs(name string, urls func(testing.TB) []string) place { return ownPlace(name, urls, Open) }

var (
	onRedis   = onURLs("redis", func(t testing.TB) []string { return []string{servers.SharedRedis(t).URL("")} })
	onThree   = onURLs("three", func(t testing.TB) []string { return databases(servers.SharedRedis(t)) })
	onCluster = onURLs("cluster", func(t testing.TB) []string {
		return []string{"redis://" + servers.SharedRedisCluster(t).Nodes[0].Addr()}
	})
)

// databases returns the URLs of three databases, which a client takes for three
// servers.
func databases(s *servers.RedisServer) (urls []string) {
	for i := range 3 {
		urls = append(urls, fmt.Sprintf("redis://%s/%d", s.Addr(), i+1))
	}
	return urls
}

// onSQL is the place of databases, whose clients share pools.
func onSQL(name string, pools func(testing.TB) []*sql.DB) place { return ownPlace(name, pools, NewSQL) }

var (
	onPostgres = onSQL("postgres", func(t testing.TB) []*sql.DB {
		// Whether a commit is flushed makes a difference for crashes alone.
		return []*sql.DB{pool(t, "pgx", servers.SharedPostgres(t).URL("postgres", "sslmode=disable&synchronous_commit=off"))}
	})
	// onMariaDB has two pools of one server, with a database each.
	onMariaDB = onSQL("mariadb", func(t testing.TB) []*sql.DB {
		s := servers.SharedMariaDB(t)
		s.Exec(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
		s.Exec(t, "CREATE DATABASE IF NOT EXISTS second")
		return []*sql.DB{pool(t, "mysql", mariaDBAt(s, "locks")), pool(t, "mysql", mariaDBAt(s, "second"))}
	})
)

func mariaDBAt(s *servers.MariaDBServer, database string) string {
	return fmt.Sprintf("holdfast:%s@tcp(127.0.0.1:%d)/%s", servers.MariaDBPassword, s.Port, database)
}

// pool opens a pool that ends after the clients of the test.
func pool(t testing.TB, driverName, address string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, address)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func onEveryBackend(t *testing.T, test func(t *testing.T, client func(testing.TB, *Options) *Stock)) {
	for _, p := range []place{onMemory(1), onMemory(3), onRedis, onThree, onCluster, onPostgres, onMariaDB} {
		t.Run(p.name, func(t *testing.T) { test(t, p.open(t)) })
	}
}

// flakyBackend is a backend that fails as networks do. It draws its next
// behaviour from a random source of its own, one for each client.
type flakyBackend struct {
	backend
	mu   sync.Mutex
	rand *rand.Rand
	rate float64
	late []func() // lost requests that may still arrive
	dead bool
	left int // dies at this request from now; 0: it lives
}

var errLost = driver.Errorf(driver.Unknown, "the answer was lost")

func (f *flakyBackend) fate() (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left > 0 {
		if f.left--; f.left == 0 {
			f.dead = true
			if f.rand.IntN(2) == 0 {
				return nil, errDead
			}
		}
	}
	if f.dead {
		return errDead, nil
	}
	if f.rand.Float64() >= f.rate {
		return nil, nil
	}
	switch f.rand.IntN(4) {
	case 0:
		return driver.Errorf(driver.Unavailable, "not now"), nil
	case 1:
		return errLost, nil
	}
	return nil, errLost
}

// errDead is the error for a client that has crashed, as far as the store can
// tell.
var errDead = driver.Errorf(driver.Refused, "the client is dead")

// deliver sends some of the lost requests, again or for the first time.
func (f *flakyBackend) deliver() {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, send := range late {
		send()
	}
}

func (f *flakyBackend) ask(ctx context.Context, at shard, q request) (answer, error) {
	before, after := f.fate()
	if before == nil {
		a, err := f.backend.ask(ctx, at, q)
		if err != nil || after == nil {
			return a, err
		}
		before = after
	}
	if before == errLost {
		f.mu.Lock()
		if f.rand.IntN(3) == 0 {
			f.late = append(f.late, func() { _, _ = f.backend.ask(context.Background(), at, q) })
		}
		f.mu.Unlock()
	}
	return answer{}, before
}

func (f *flakyBackend) sell(ctx context.Context, at shard, sales []*batchedSale) error {
	before, after := f.fate()
	if before == nil {
		err := f.backend.sell(ctx, at, sales)
		if err != nil || after == nil {
			return err
		}
		before = after
	}
	if before == errLost {
		f.mu.Lock()
		if f.rand.IntN(3) == 0 {
			late := copies(sales)
			f.late = append(f.late, func() { _ = f.backend.sell(context.Background(), at, late) })
		}
		f.mu.Unlock()
	}
	return before
}

// copies returns the requests of a batch without its answers.
func copies(sales []*batchedSale) (late []*batchedSale) {
	for _, s := range sales {
		late = append(late, &batchedSale{request: s.request})
	}
	return late
}

func (f *flakyBackend) directory(ctx context.Context, sku string) ([]byte, int64, error) {
	if before, after := f.fate(); before != nil || after != nil {
		return nil, 0, errOf(before, after)
	}
	return f.backend.directory(ctx, sku)
}

func (f *flakyBackend) swap(ctx context.Context, sku string, from, to []byte) (bool, error) {
	before, after := f.fate()
	if before != nil {
		return false, before
	}
	ok, err := f.backend.swap(ctx, sku, from, to)
	if err == nil && after != nil {
		return false, after
	}
	return ok, err
}

func errOf(before, after error) error {
	if before != nil {
		return before
	}
	return after
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// count fails the test unless the product has these numbers and nothing is in
// transfer.
func count(t testing.TB, s *Stock, sku string, units, left int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	got, err := s.Total(ctx, sku)
	if err != nil || !got.Exact || got.Units != units || got.Least != left || got.Most != left || got.Sold != units-left {
		t.Fatalf("the total is %+v, %v; want %d units, %d left", got, err, units, left)
	}
}
