// Package lockserver_test measures a lock server over a store on Redis, which the module of
// the core does not require.
package lockserver_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/plainhttp"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/redislock"
)

var costs = flag.Bool("lockserver.costs", false, "measure what a lock server adds to a lock on Redis, and the memory of holds and waits")

// TestCosts measures a lock and its release by HTTP on one connection, in turn with the
// same by a client of the store in this process, the processor time of a command under a lock,
// and the memory of holds and waits.
func TestCosts(t *testing.T) {
	if !*costs {
		return // make serve-costs
	}
	t.Run("time", measureTime)
	t.Run("command", measureCommand)
	t.Run("memory with the store's", func(t *testing.T) { measureMemory(t, memlock.New(memlock.NewStore())) })
	t.Run("memory", func(t *testing.T) { measureMemory(t, &storeless{Driver: memlock.New(memlock.NewStore())}) })
}

// storeless grants what nobody else waits for, and keeps nothing: a store on another
// machine.
type storeless struct {
	*memlock.Driver
	tokens atomic.Uint64
}

func (d *storeless) Join(_ context.Context, t *driver.Ticket, _ bool) (driver.Status, error) {
	if t.Name == "queue" && d.tokens.Load() > 0 {
		return driver.Status{State: driver.Waiting, Lease: t.TTL, Ahead: 1}, nil
	}
	return driver.Status{State: driver.Held, Lease: t.TTL, Token: d.tokens.Add(1)}, nil
}

func (d *storeless) Renew(_ context.Context, refs []driver.Ref) ([]driver.Status, error) {
	answers := make([]driver.Status, len(refs))
	for i, ref := range refs {
		answers[i] = driver.Status{State: ref.State, Lease: ref.TTL}
	}
	return answers, nil
}

func (d *storeless) Leave(_ context.Context, refs []driver.Ref) ([]driver.Status, error) {
	answers := make([]driver.Status, len(refs))
	for i, ref := range refs {
		answers[i] = driver.Status{State: ref.State}
	}
	return answers, nil
}

func measureTime(t *testing.T) {
	redis := servers.Redis(t, servers.RedisOptions{})
	open := func() *holdfast.Client {
		d, err := redislock.Open(t.Context(), redis.URL(""))
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	direct := open()
	s, err := lockserver.New(open(), lockserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	defer web.Close()
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer bare.Close()
	caller := &http.Client{Transport: &plainhttp.Transport{MaxIdle: 1, IdleTimeout: time.Minute, Dial: new(net.Dialer).DialContext}}
	defer caller.CloseIdleConnections()
	post := func(at, path string, form url.Values) {
		resp, err := caller.PostForm(at+path, form)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s %v", path, resp.StatusCode, b, err)
		}
	}
	const rounds = 4000
	var inProcess, owned, served, pinned, empty []time.Duration
	for i := range rounds {
		name := fmt.Sprintf("costs/%d", i)
		lock := func(opts ...holdfast.Option) time.Duration {
			begun := time.Now()
			h, err := direct.Mutex(name, opts...).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Unlock(); err != nil {
				t.Fatal(err)
			}
			return time.Since(begun)
		}
		inProcess, owned = append(inProcess, lock()), append(owned, lock(holdfast.WithOwner(name)))
		for _, pin := range []bool{false, true} {
			id := fmt.Sprintf("costs-%d-%v-0123456789", i, pin)
			acquire := url.Values{"id": {id}, "name": {name}, "ttl_ms": {"30000"}, "pinned": {fmt.Sprint(pin)}}
			release := url.Values{"id": {id}, "name": {name}}
			begun := time.Now()
			post(web.URL, "/v1/acquire", acquire)
			post(web.URL, "/v1/release", release)
			if pin {
				pinned = append(pinned, time.Since(begun))
			} else {
				served = append(served, time.Since(begun))
				begun = time.Now()
				post(bare.URL, "/", acquire)
				post(bare.URL, "/", release)
				empty = append(empty, time.Since(begun))
			}
		}
	}
	p50 := func(d []time.Duration) time.Duration {
		slices.Sort(d)
		return d[len(d)/2].Round(time.Microsecond)
	}
	t.Logf("lock and release, p50 of %d: in process %v, and with an owner %v; by a server %v, pinned %v; two bare requests %v",
		rounds, p50(inProcess), p50(owned), p50(served), p50(pinned), p50(empty))
}

// measureCommand measures the processor time of a short command under a lock: of all processes
// that it starts and waits for.
func measureCommand(t *testing.T) {
	dir := t.TempDir()
	command, socket := filepath.Join(dir, "holdfast"), filepath.Join(dir, "s")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", command, "./cmd/holdfast") // as a release has it
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, text)
	}
	redis := servers.Redis(t, servers.RedisOptions{}).URL("")
	agent := exec.CommandContext(t.Context(), command, "serve", "--store", redis, "--unix", socket)
	agent.Stderr = t.Output()
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = agent.Process.Signal(os.Interrupt)
		_ = agent.Wait()
	}()
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	ways := []struct {
		name string
		args []string
		took []time.Duration
	}{
		{name: "straight at Redis", args: []string{command, "run", "--store", redis, "x", "--", "true"}},
		{name: "by a server on a Unix socket", args: []string{command, "run", "--store", "holdfast-unix:" + socket, "x", "--", "true"}},
		{name: "holdfast version", args: []string{command, "version"}},
		{name: "true", args: []string{"true"}},
	}
	for range 40 {
		for i := range ways {
			cmd := exec.CommandContext(t.Context(), ways[i].args[0], ways[i].args[1:]...)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v: %s", ways[i].args, err, text)
			}
			ways[i].took = append(ways[i].took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
		}
	}
	for _, w := range ways {
		slices.Sort(w.took)
		t.Logf("processor time of a run, p50 of %d: %s %v", len(w.took), w.name, w.took[len(w.took)/2].Round(100*time.Microsecond))
	}
}

func measureMemory(t *testing.T, d holdfast.Driver) {
	c, err := holdfast.New(d)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const many = 10_000
	s, err := lockserver.New(c, lockserver.Options{Limits: lockserver.Limits{Waiters: many, Holds: 3 * many}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(id, name, state string) {
		form := url.Values{"id": {id}, "name": {name}, "ttl_ms": {"600000"}, "wait_ms": {"0"}}
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "http://127.0.0.1/v1/acquire", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var a struct{ State string }
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || a.State != state {
			t.Fatalf("%s: %s, %v", name, w.Body, err)
		}
	}
	used := func() (bytes, goroutines int64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse), int64(runtime.NumGoroutine())
	}
	each := func(what string, f func(i int)) {
		bytes, goroutines := used()
		for i := range many {
			f(i)
		}
		bytes2, goroutines2 := used()
		t.Logf("%d %s: %d bytes and %.2f goroutines each", many, what, (bytes2-bytes)/many, float64(goroutines2-goroutines)/many)
	}
	ask("first-of-all-012345", "queue", "held")
	each("holds by a server", func(i int) { ask(fmt.Sprintf("memory-held-0123.%d", i), fmt.Sprintf("served/%d", i), "held") })
	each("waits by a server", func(i int) { ask(fmt.Sprintf("memory-waiting-01.%d", i), "queue", "waiting") })
	ctx, cancel := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	each("holds in process", func(i int) {
		if _, err := c.Mutex(fmt.Sprintf("direct/%d", i)).Lock(ctx); err != nil {
			t.Error(err)
		}
	})
	each("waits in process", func(int) {
		joined := make(chan struct{})
		first := sync.OnceFunc(func() { close(joined) })
		waits.Go(func() {
			_, _ = c.Mutex("queue", holdfast.WithOwner(rand.Text()), holdfast.WithWaiting(func(holdfast.Waiting) { first() })).Lock(ctx)
		})
		<-joined
	})
	cancel()
	waits.Wait()
	_ = s.Drain(ctx)
}
