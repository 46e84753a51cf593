package holdfast_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memlock"
)

// setting is a value of an option, usually at an end of its range.
type setting struct {
	name string
	opt  holdfast.Option
	bad  bool                   // no lock takes it
	fits func(kind string) bool // nil for all kinds
}

func notPermits(kind string) bool  { return kind != "permit" && kind != "all permits" }
func onlyPermits(kind string) bool { return !notPermits(kind) }

var settings = []setting{
	{name: "nothing", opt: holdfast.WithMaxHold(0)},
	{name: "least TTL", opt: holdfast.WithTTL(10 * time.Millisecond)},
	{name: "longest TTL", opt: holdfast.WithTTL(memlock.New(memlock.NewStore()).Traits().MaxTTL)},
	{name: "TTL too short", opt: holdfast.WithTTL(10*time.Millisecond - 1), bad: true},
	{name: "TTL too long", opt: holdfast.WithTTL(math.MaxInt64), bad: true},
	{name: "TTL of nothing", opt: holdfast.WithTTL(0), bad: true},
	{name: "TTL below nothing", opt: holdfast.WithTTL(math.MinInt64), bad: true},
	{name: "least MaxHold", opt: holdfast.WithMaxHold(1)},
	{name: "short MaxHold", opt: holdfast.WithMaxHold(time.Millisecond)},
	{name: "longest MaxHold", opt: holdfast.WithMaxHold(math.MaxInt64)},
	{name: "MaxHold below nothing", opt: holdfast.WithMaxHold(-1), bad: true},
	{name: "least MaxWait", opt: holdfast.WithMaxWait(1)},
	{name: "longest MaxWait", opt: holdfast.WithMaxWait(math.MaxInt64)},
	{name: "MaxWait below nothing", opt: holdfast.WithMaxWait(-1), bad: true},
	{name: "no owner", opt: holdfast.WithOwner("")},
	{name: "owner", opt: holdfast.WithOwner("o"), fits: notPermits},
	{name: "longest owner", opt: holdfast.WithOwner(strings.Repeat("o", driver.MaxOwner)), fits: notPermits},
	{name: "owner too long", opt: holdfast.WithOwner(strings.Repeat("o", driver.MaxOwner+1)), bad: true},
	{name: "longest note", opt: holdfast.WithNote(strings.Repeat("n", 512))},
	{name: "note too long", opt: holdfast.WithNote(strings.Repeat("n", 513)), bad: true},
	{name: "existing size", opt: holdfast.WithExistingSize(), fits: onlyPermits},
	{name: "nil", opt: nil, bad: true},
}

// tries are the ways to take the name "a" of a client, by kind of lock.
var tries = map[string]func(*holdfast.Client, ...holdfast.Option) (*holdfast.Hold, error){
	"mutex": func(c *holdfast.Client, o ...holdfast.Option) (*holdfast.Hold, error) {
		return c.Mutex("a", o...).TryLock(bg)
	},
	"writer": func(c *holdfast.Client, o ...holdfast.Option) (*holdfast.Hold, error) {
		return c.RWMutex("a", o...).TryLock(bg)
	},
	"reader": func(c *holdfast.Client, o ...holdfast.Option) (*holdfast.Hold, error) {
		return c.RWMutex("a", o...).TryRLock(bg)
	},
	"permit": func(c *holdfast.Client, o ...holdfast.Option) (*holdfast.Hold, error) {
		return c.Semaphore("a", 3, o...).TryAcquire(bg, 1)
	},
	"all permits": func(c *holdfast.Client, o ...holdfast.Option) (*holdfast.Hold, error) {
		return c.Semaphore("a", 3, o...).TryAcquire(bg, 3)
	},
}

// shares reports whether holds of the two kinds may hold one name together.
func shares(a, b string) bool {
	return a == b && (a == "reader" || a == "permit")
}

// TestF110_PairsOfOptions checks that two options of a lock either both have
// their effect or are an error of the handle, and that two exclusive holds,
// whatever their options, never both have a nil Err. It tries every two
// settings, for every kind, against every kind.
func TestF110_PairsOfOptions(t *testing.T) {
	for kind, try := range tries {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := memlock.NewStore()
				c := client(t, drivertest.Strict(t, memlock.New(store)))
				other := client(t, drivertest.Strict(t, memlock.New(store)))
				for _, one := range settings {
					for _, two := range settings {
						pair(t, c, other, kind, try, one, two)
					}
				}
				synctest.Wait()
				if n := tickets(t, other, "a"); n != 0 {
					t.Errorf("%d tickets stay", n)
				}
			})
		})
	}
}

func pair(t *testing.T, c, other *holdfast.Client, kind string, try func(*holdfast.Client, ...holdfast.Option) (*holdfast.Hold, error), one, two setting) {
	what := fmt.Sprintf("%s with %s and %s", kind, one.name, two.name)
	// The later of two values of one option counts, so the verdict is not the
	// sum.
	bad := func(s setting) bool { return s.bad || s.fits != nil && !s.fits(kind) }
	same := func() bool { return strings.Fields(options(one))[0] == strings.Fields(options(two))[0] }
	wrong := bad(two) || bad(one) && (!same() || options(one) == "nil" || options(one) == "handle")
	h, err := try(c, one.opt, two.opt)
	if err != nil {
		if !wrong {
			t.Errorf("%s: %v", what, err)
		}
		if !strings.HasPrefix(err.Error(), "holdfast: ") || len(err.Error()) > 600 {
			t.Errorf("%s: message %q", what, err)
		}
		return
	}
	if wrong {
		t.Errorf("%s was taken", what)
	}
	exclusion(t, what, h, kind, other)
	time.Sleep(2 * time.Millisecond)
	ended := options(two) == "MaxHold" && two.name != "longest MaxHold" && two.name != "nothing" ||
		options(one) == "MaxHold" && options(two) != "MaxHold" && one.name != "longest MaxHold" && one.name != "nothing"
	lost, _ := errors.AsType[*holdfast.LostError](h.Err())
	if ended != (lost != nil && lost.Reason == holdfast.LossMaxHold) {
		t.Errorf("%s: after 2 ms Err is %v", what, h.Err())
	}
	if err := h.Unlock(); ended != errors.Is(err, holdfast.ErrLost) {
		t.Errorf("%s: Unlock %v", what, err)
	}
	synctest.Wait()
}

// exclusion tries all kinds of locks, with all settings, from the other client
// beside a hold.
func exclusion(t *testing.T, what string, h *holdfast.Hold, kind string, other *holdfast.Client) {
	for theirs, try := range tries {
		if shares(kind, theirs) {
			continue
		}
		for _, s := range settings {
			if options(s) == "Owner" { // an owner holds together
				continue
			}
			g, err := try(other, s.opt)
			if err != nil {
				continue
			}
			if g.Err() == nil && h.Err() == nil {
				t.Errorf("%s holds, and beside it a %s with %s", what, theirs, s.name)
			}
			_ = g.Unlock()
		}
	}
}

// options returns the name of the option that a setting sets.
func options(s setting) string {
	switch {
	case strings.Contains(s.name, "TTL"):
		return "TTL"
	case strings.Contains(s.name, "MaxHold"), s.name == "nothing":
		return "MaxHold"
	case strings.Contains(s.name, "MaxWait"):
		return "MaxWait"
	case strings.Contains(s.name, "owner"):
		return "Owner"
	case strings.Contains(s.name, "note"):
		return "Note"
	case s.name == "nil":
		return "nil"
	}
	return "handle"
}
