package faults

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

// library takes locks with a lease of ttl, and renews none by a loop of ours.
type library struct {
	store string // key of places
	open  func(t *testing.T, addr string) taker
}

// taker is a program that uses a library.
type taker interface {
	// take takes the lock if it is free, and returns how to take it once more from
	// within, and how to release it.
	take(ctx context.Context, name string) (again func() (release func() error, err error), release func() error, err error)
}

// libraries are the rows of README's table of features that a test can play, by
// the first word of their first cell.
var libraries = map[string]library{
	"Holdfast":    {"redis", takeHoldfast},
	"redsync":     {"redis", takeRedsync},
	"redislock":   {"redis", takeRedislock},
	"rueidislock": {"redis", takeRueidislock},
	"etcd":        {"etcd", takeConcurrency},
}

// TestFeaturesOfLibraries checks two columns of README's table of features. A library
// renews if its lock is still held after twice the lease, of which nothing was asked
// meanwhile. It is reentrant if a holder can take its lock once more, and releasing
// that does not let anybody else in.
func TestFeaturesOfLibraries(t *testing.T) {
	table := featureTable(t)
	at := map[string]place{}
	for _, l := range libraries {
		if _, ok := at[l.store]; !ok {
			at[l.store] = places[l.store](t)
		}
	}
	for name, l := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reentrantLock, renewedLock := name+"/reentrant", name+"/renewed" // some use the bare name as their key
			one, other := l.open(t, at[l.store].addr), l.open(t, at[l.store].addr)
			excluded := func(lock string) bool {
				_, release, err := other.take(t.Context(), lock)
				if err == nil {
					if err := release(); err != nil {
						t.Error(err)
					}
				}
				return err != nil
			}
			check := func(column string, got bool) {
				cell, ok := table[name][column]
				if said := strings.HasPrefix(cell, "yes"); !ok || said != got {
					t.Errorf("%s is %v, and the README says %q", column, got, cell)
				}
			}

			again, release, err := one.take(t.Context(), reentrantLock)
			if err != nil {
				t.Fatal(err)
			}
			inner, err := again()
			reentrant := err == nil && excluded(reentrantLock)
			if err == nil {
				if err := inner(); err != nil {
					t.Error(err)
				}
				reentrant = reentrant && excluded(reentrantLock)
			}
			check("reentrant", reentrant)
			_ = release() // of a lock that the inner release may have freed

			_, release, err = one.take(t.Context(), renewedLock)
			if err != nil {
				t.Fatal(err)
			}
			if !excluded(renewedLock) {
				t.Error("a lock that was just taken excludes nobody")
			}
			time.Sleep(2*ttl + time.Second) // etcd ends sessions late
			check("renewed", excluded(renewedLock))
			_ = release() // of a lock that may have expired
		})
	}
}

// featureTable returns the cells of README's table of features, by the first word of
// a row and the title of a column, without their links.
func featureTable(t *testing.T) map[string]map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	table, titles := map[string]map[string]string{}, []string(nil)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(link.ReplaceAllString(line, "$1")), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " *`")
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			titles = nil
		case len(cells) > 3 && cells[1] == "fair":
			titles = cells
		case titles != nil && len(cells) == len(titles) && !strings.HasPrefix(cells[0], "---"):
			name, _, _ := strings.Cut(cells[0], " ")
			row := map[string]string{}
			for i, cell := range cells {
				row[titles[i]] = cell
			}
			table[name] = row
		}
	}
	if len(table) < len(libraries) {
		t.Fatalf("the README's table has %d rows, want at least %d", len(table), len(libraries))
	}
	return table
}

func takeHoldfast(t *testing.T, addr string) taker {
	c, err := anylock.Open(t.Context(), "redis://"+addr, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return takesHoldfast{c}
}

type takesHoldfast struct{ c *holdfast.Client }

func (l takesHoldfast) take(ctx context.Context, name string) (func() (func() error, error), func() error, error) {
	h, err := l.c.Mutex(name).TryLock(ctx)
	if err != nil {
		return nil, nil, err
	}
	return func() (func() error, error) {
		in, err := l.c.Mutex(name).TryLock(h.Context())
		if err != nil {
			return nil, err
		}
		return in.Unlock, nil
	}, h.Unlock, nil
}

func takeRedsync(t *testing.T, addr string) taker {
	c := dial(addr)
	t.Cleanup(func() { _ = c.Close() })
	return takesRedsync{redsync.New(pool.NewPool(c))}
}

type takesRedsync struct{ r *redsync.Redsync }

func (l takesRedsync) take(ctx context.Context, name string) (func() (func() error, error), func() error, error) {
	m := l.r.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1))
	take := func() (func() error, error) {
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error { _, err := m.UnlockContext(ctx); return err }, nil
	}
	release, err := take()
	return take, release, err // the same mutex, as it is the only handle of the hold
}

func takeRedislock(t *testing.T, addr string) taker {
	c := dial(addr)
	t.Cleanup(func() { _ = c.Close() })
	return takesRedislock{bsm.New(c)}
}

type takesRedislock struct{ c *bsm.Client }

func (l takesRedislock) take(ctx context.Context, name string) (func() (func() error, error), func() error, error) {
	take := func() (func() error, error) {
		k, err := l.c.Obtain(ctx, name, ttl, nil)
		if err != nil {
			return nil, err
		}
		return func() error { return k.Release(ctx) }, nil
	}
	release, err := take()
	return take, release, err
}

func takeRueidislock(t *testing.T, addr string) taker {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, KeyValidity: ttl,
		ExtendInterval: ttl / 3, TryNextAfter: ttl / 3, NoLoopTracking: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return takesRueidislock{l}
}

type takesRueidislock struct{ l rueidislock.Locker }

func (l takesRueidislock) take(ctx context.Context, name string) (func() (func() error, error), func() error, error) {
	take := func(ctx context.Context) (context.Context, func() error, error) {
		held, release, err := l.l.TryWithContext(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		return held, func() error { release(); return nil }, nil
	}
	held, release, err := take(ctx)
	return func() (func() error, error) { _, release, err := take(held); return release, err }, release, err
}

func takeConcurrency(t *testing.T, addr string) taker {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := concurrency.NewSession(c, concurrency.WithTTL(int(ttl/time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return takesConcurrency{s}
}

type takesConcurrency struct{ s *concurrency.Session }

func (l takesConcurrency) take(ctx context.Context, name string) (func() (func() error, error), func() error, error) {
	take := func() (func() error, error) {
		m := concurrency.NewMutex(l.s, name)
		if err := m.TryLock(ctx); err != nil {
			return nil, err
		}
		return func() error { return m.Unlock(ctx) }, nil
	}
	release, err := take()
	return take, release, err
}
