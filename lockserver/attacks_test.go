package lockserver

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// mortal is the driver of a server that dies: nothing of it reaches the store then.
type mortal struct {
	*memlock.Driver
	dead atomic.Bool
}

func (d *mortal) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.dead.Load() {
		return nil, driver.Errorf(driver.Unavailable, "dead")
	}
	return d.Driver.Renew(ctx, refs)
}

func (d *mortal) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.dead.Load() {
		return nil, driver.Errorf(driver.Unavailable, "dead")
	}
	return d.Driver.Leave(ctx, refs)
}

// TestAttack6ClientAndServerDie checks that a client and, just before the claim ends, its
// server delay others by no more than the client alone: the lease is the client's.
func TestAttack6ClientAndServerDie(t *testing.T) {
	bubble(t, func(w *world) {
		d := &mortal{Driver: memlock.New(w.store)}
		a, b := w.serverWith(w.clientOf(d), Options{}), w.server()
		w.acquire(a, 1, "a")
		time.Sleep(5 * time.Second)
		w.want("the last renewal", w.renew(a, 1), 200, "state", "held")
		asked := time.Now()
		time.AfterFunc(8800*time.Millisecond, func() { d.dead.Store(true) })
		w.want("the next one", w.acquire(b, 2, "a"), 200, "state", "held")
		if took := time.Since(asked); took < 8900*time.Millisecond || took > 9*time.Second+450*time.Millisecond {
			t.Errorf("it waited %v", took)
		}
		w.release(b, 2, "a")
	})
}

// TestAttack9GroupsDiffer checks that the group is equal for servers over one store in one
// realm, and for no others.
func TestAttack9GroupsDiffer(t *testing.T) {
	bubble(t, func(w *world) {
		group := func(s *Server) string {
			g := w.get(s, "/v1/server").text("group")
			if len(g) != 8 {
				t.Errorf("group %q", g)
			}
			return g
		}
		first := group(w.server())
		if got := group(w.server()); got != first {
			t.Errorf("%s and %s for one store", first, got)
		}
		realm := group(w.serverWith(w.client(), Options{Realm: "other"}))
		store := group(w.serverWith(w.clientOf(memlock.New(memlock.NewStore())), Options{}))
		if realm == first || store == first || realm == store {
			t.Errorf("%s, %s in another realm, %s over another store", first, realm, store)
		}
	})
}

// TestAttack13BreakOfASibling checks that a hold with tickets of two servers outlives the
// break of one, and that all tickets of its owner are broken together.
func TestAttack13BreakOfASibling(t *testing.T) {
	bubble(t, func(w *world) {
		operator := Principal{Name: LocalName, Grants: []Grant{{May: []Right{RightRead, RightLock, RightBreak}}}}
		admin := Options{Auth: &Auth{Identify: func(*http.Request) (Principal, error) { return operator, nil }}}
		a, b := w.serverWith(w.client(), admin), w.serverWith(w.client(), admin)
		first := w.acquire(a, 1, "a")
		w.want("resume", w.acquire(b, 1, "a", "resume", first.text("token")), 200, "state", "held")
		w.want("wait", w.acquire(a, 2, "a", "wait_ms", "0"), 202, "state", "waiting")
		info, err := w.client().Inspect(context.Background(), "a")
		if err != nil || len(info.Holders) != 2 {
			t.Fatalf("%v, %v", info.Holders, err)
		}
		w.want("break of one", w.post(a, "/v1/break", "name", "a", "ticket", info.Holders[0].ID), 200, "broken", "1")
		settle()
		w.want("the waiter", w.acquire(a, 2, "a", "wait_ms", "0"), 202, "state", "waiting")
		w.want("the hold", w.renew(b, 1), 200, "state", "held", "token", first.text("token"))
		w.want("break of all", w.post(a, "/v1/break", "name", "a", "owner", info.Holders[0].Holder.Owner), 200)
		settle()
		w.want("the waiter", w.acquire(a, 2, "a", "wait_ms", "0"), 200, "state", "held")
		w.want("the hold", w.renew(b, 1), 200, "status", "410", "code", "lost", "reason", "gone")
		w.release(a, 2, "a")
	})
}

// TestAttacksOfThePageAreTests checks that the tests that docs/serve.md names exist.
func TestAttacksOfThePageAreTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "serve.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|test_)[A-Za-z0-9_]+)`").FindAllSubmatch(page, -1)
	if len(named) < 25 {
		t.Errorf("docs/serve.md names %d tests, of 25 attacks", len(named))
	}
	var sources []byte
	for _, pattern := range []string{"*_test.go", "internal/page/*_test.go", "../internal/cli/*_test.go", "../internal/lockclient/*_test.go", "../clients/python/tests/*.py"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, text...)
		}
	}
	for _, name := range named {
		if !regexp.MustCompile(`(?m)^\s*(func|def) ` + string(name[1]) + `\(`).Match(sources) {
			t.Errorf("docs/serve.md names %s, which is no test", name[1])
		}
	}
}

var _ holdfast.Driver = (*mortal)(nil)
