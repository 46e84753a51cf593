package holdfast_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestBadInput checks that bad names, options and arguments are refused.
//
// Covers: F60, F61.
func TestBadInput(t *testing.T) {
	c := client(t, memlock.New(memlock.NewStore()))
	long := strings.Repeat("x", driver.MaxName+1)
	for name, lock := range map[string]func() (*holdfast.Hold, error){
		"empty name":       func() (*holdfast.Hold, error) { return c.Mutex("").Lock(bg) },
		"long name":        func() (*holdfast.Hold, error) { return c.Mutex(long).Lock(bg) },
		"invalid UTF-8":    func() (*holdfast.Hold, error) { return c.Mutex("\xff").Lock(bg) },
		"zero TTL":         func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithTTL(0)).Lock(bg) },
		"negative TTL":     func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithTTL(-1)).Lock(bg) },
		"short TTL":        func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithTTL(1)).Lock(bg) },
		"huge TTL":         func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithTTL(1<<62)).Lock(bg) },
		"negative MaxHold": func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithMaxHold(-1)).Lock(bg) },
		"negative MaxWait": func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithMaxWait(-1)).TryLock(bg) },
		"long note":        func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithNote(long[:600])).Lock(bg) },
		"note with escape": func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithNote("\x1b[2J")).Lock(bg) },
		"long owner":       func() (*holdfast.Hold, error) { return c.Mutex("a", holdfast.WithOwner(long)).Lock(bg) },
		"no permits":       func() (*holdfast.Hold, error) { return c.Semaphore("a", 0).Acquire(bg, 1) },
		"negative permits": func() (*holdfast.Hold, error) { return c.Semaphore("a", -1).Acquire(bg, 1) },
		"2^30 permits":     func() (*holdfast.Hold, error) { return c.Semaphore("a", 1<<30).Acquire(bg, 1) },
		"0 of 3 permits":   func() (*holdfast.Hold, error) { return c.Semaphore("a", 3).Acquire(bg, 0) },
		"4 of 3 permits":   func() (*holdfast.Hold, error) { return c.Semaphore("a", 3).TryAcquire(bg, 4) },
		"owned semaphore": func() (*holdfast.Hold, error) {
			return c.Semaphore("a", 3, holdfast.WithOwner("o")).Acquire(bg, 1)
		},
	} {
		h, err := lock()
		if err == nil || h != nil {
			t.Errorf("%s: %v, %v", name, h, err)
		} else if msg := err.Error(); !strings.HasPrefix(msg, "holdfast: ") || strings.Contains(msg, "\n") || len(msg) > 300 {
			t.Errorf("%s: message %q", name, msg)
		}
	}
	if _, err := c.Multi(nil).Lock(bg); err == nil {
		t.Error("Multi of nothing")
	}
	for _, o := range []holdfast.ClientOption{holdfast.WithTTL(0), holdfast.WithPrefix("\xff"), holdfast.WithMaxHold(-1), holdfast.WithMaxWait(-1)} {
		if _, err := holdfast.New(memlock.New(memlock.NewStore()), o); err == nil {
			t.Error("New took a bad option")
		}
	}
	if _, err := holdfast.New(nil); err == nil {
		t.Error("New took no driver")
	}
}

func TestF63_KindMismatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(a.Semaphore("s", 5).Acquire(bg, 2))
		_, err := b.Mutex("s").Lock(bg)
		wantErr(t, err, holdfast.ErrKindMismatch)
		_, err = b.Semaphore("s", 7).TryAcquire(bg, 1)
		wantErr(t, err, holdfast.ErrKindMismatch)
		if !strings.Contains(err.Error(), "semaphore of 5") || !strings.Contains(err.Error(), "semaphore of 7") {
			t.Errorf("%q does not name both sizes", err)
		}
		sem := b.Semaphore("s", 7, holdfast.WithExistingSize())
		h2 := must(t)(sem.Acquire(bg, 3))
		_, err = sem.TryAcquire(bg, 1)
		wantErr(t, err, holdfast.ErrHeld)
		unlock(t, h)
		unlock(t, h2)
		unlock(t, must(t)(b.Mutex("s").Lock(bg)))
	})
}

// TestPrefixSeparates checks that clients with different prefixes share a store
// without sharing names.
//
// Covers: F66.
func TestPrefixSeparates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a := client(t, memlock.New(s), holdfast.WithPrefix("a/"))
		b := client(t, memlock.New(s), holdfast.WithPrefix("b/"))
		all := client(t, memlock.New(s))
		h, h2 := must(t)(a.Mutex("x").TryLock(bg)), must(t)(b.Mutex("x").TryLock(bg))
		names := func(c *holdfast.Client) (ns []string) {
			for n, err := range c.Names(bg, "") {
				if err != nil {
					t.Fatal(err)
				}
				ns = append(ns, n)
			}
			slices.Sort(ns)
			return ns
		}
		if got := fmt.Sprint(names(a), names(all)); got != "[x] [a/x b/x]" {
			t.Errorf("names %s", got)
		}
		if n := tickets(t, a, "x"); n != 1 {
			t.Errorf("%d tickets", n)
		}
		unlock(t, h)
		unlock(t, h2)
	})
}

// TestNamesOfABadPrefix checks that a prefix that is not valid UTF-8, with which no name
// begins, is an error, not an empty list.
func TestNamesOfABadPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		for _, prefix := range []string{"\xff", "a\xc3"} {
			got := 0
			for name, err := range c.Names(bg, prefix) {
				if got++; err == nil || name != "" || !strings.Contains(err.Error(), "not valid UTF-8") || errors.As(err, new(*holdfast.StoreError)) {
					t.Errorf("%q: %q, %v", prefix, name, err)
				}
			}
			if got != 1 {
				t.Errorf("%q: %d results", prefix, got)
			}
		}
	})
}

// TestNameThatThePrefixMakesTooLong checks that the error of a name that is too long
// with the prefix alone names the prefix: the length is not that of the name.
func TestNameThatThePrefixMakesTooLong(t *testing.T) {
	c, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithPrefix("app/"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Inspect(bg, strings.Repeat("x", 4093)); err == nil || !strings.Contains(err.Error(), "prefix of 4 bytes") {
		t.Errorf("a name of 4093 bytes after a prefix of 4: %v", err)
	}
	if _, err := c.Inspect(bg, strings.Repeat("x", 4092)); err != nil {
		t.Errorf("a name of 4092 bytes after a prefix of 4: %v", err)
	}
}
