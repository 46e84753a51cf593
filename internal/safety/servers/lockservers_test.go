package servers

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

var lockd = flag.String("servers.holdfast", "", "program holdfast; empty: it is built")

// buildHoldfast returns the path of the command.
func buildHoldfast(t *testing.T) string {
	t.Helper()
	if *lockd != "" {
		return *lockd
	}
	path := filepath.Join(t.TempDir(), "holdfast")
	if out, err := exec.Command("go", "build", "-o", path, "../../../cmd/holdfast").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// lockServer is a process of holdfast serve.
type lockServer struct {
	*servers.Process
	t    *testing.T
	spec servers.Spec
	addr string
	back *faultproxy.Proxy // on its way to the store; nil if the store is a file
}

// startLockServer starts a server over a store at addr, which is empty for a file.
func startLockServer(t *testing.T, program, url, addr string) *lockServer {
	t.Helper()
	s := &lockServer{t: t, addr: "127.0.0.1:" + strconv.Itoa(servers.FreePort(t))}
	if addr != "" {
		s.back = faultproxy.Between(t, addr)
		url = strings.Replace(url, addr, s.back.Addr(), 1)
	}
	file := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.spec = servers.Spec{
		Name: "holdfast serve", Path: program, Ready: s.serves,
		Args: []string{"serve", "--store-file", file, "--listen", s.addr, "--drain", "2s"},
	}
	s.Process = servers.Start(t, s.spec)
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() && *history != "" {
			t.Logf("the server at %s said:\n%s", s.addr, s.Log())
		}
	})
	return s
}

// serves returns nil if the server and its store answer.
func (s *lockServer) serves(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/readyz", nil)
	if err != nil {
		return err
	}
	one := &http.Transport{DisableKeepAlives: true}
	resp, err := one.RoundTrip(r)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// restart starts a server that has ended.
func (s *lockServer) restart() { s.Process = servers.Start(s.t, s.spec) }

// awaitReady waits until a server answers that was cut off.
func (s *lockServer) awaitReady() error {
	return awaitCondition("the server at "+s.addr+" is ready", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return s.serves(ctx) == nil
	})
}

// lockServers are two servers over one store, and the ways of clients to them.
type lockServers struct {
	t    *testing.T
	rnd  *faultSource
	pair [2]*lockServer
	// fronts are the ways of each client to each server.
	fronts [][2]*faultproxy.Proxy

	mu      sync.Mutex
	struck  int // faults in force: all are at one server, so that the other could keep each hold
	at      int // the server of these faults
	down    bool
	effects map[string]int64
}

// strike begins a fault at the server that other faults in force have struck, or at any.
// process says that it is one of the process; it does not begin if another one is in
// force.
func (l *lockServers) strike(kind string, process bool) (at int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if process && l.down {
		return 0, false
	}
	if l.struck == 0 {
		l.at = l.rnd.intN(2)
	}
	l.struck++
	l.down = l.down || process
	l.effects[kind]++
	return l.at, true
}

// over ends a fault. The last one in force waits until the server serves again.
func (l *lockServers) over(process bool) error {
	l.mu.Lock()
	s, last := l.pair[l.at], l.struck == 1
	l.mu.Unlock()
	var err error
	if last {
		err = s.awaitReady()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.struck--
	l.down = l.down && !process
	return err
}

// ofProcess is a fault of a server's process.
func (l *lockServers) ofProcess(kind string, begin, end func(s *lockServer)) torture.Fault {
	return torture.Fault{Kind: kind, Weight: 20, Begin: func(int) (func() error, error) {
		at, ok := l.strike(kind, true)
		if !ok {
			return func() error { return nil }, nil
		}
		s := l.pair[at]
		begin(s)
		return func() error { end(s); return l.over(true) }, nil
	}}
}

// ofWay is a fault of a way: a client's to a server, or a server's to the store.
func (l *lockServers) ofWay(kind string, client bool, begin, end func(p *faultproxy.Proxy)) torture.Fault {
	return torture.Fault{Kind: kind, Weight: 10, Client: client, Begin: func(c int) (func() error, error) {
		if client && c >= len(l.fronts) {
			return func() error { return nil }, nil // straight at the store
		}
		at, _ := l.strike(kind, false)
		p := l.pair[at].back
		if client {
			p = l.fronts[c][at]
		}
		begin(p)
		return func() error { end(p); return l.over(false) }, nil
	}}
}

// arm cuts one of the next messages.
func (l *lockServers) arm(p *faultproxy.Proxy) {
	when := []faultproxy.When{faultproxy.Before, faultproxy.After}[l.rnd.intN(2)]
	how := []faultproxy.How{faultproxy.Close, faultproxy.Reset, faultproxy.Silence}[l.rnd.intN(3)]
	p.Arm(1+l.rnd.intN(5), when, how)
}

// faults returns the faults of servers and of ways.
func (l *lockServers) faults(store bool) []torture.Fault {
	all := []torture.Fault{
		l.ofProcess("server killed", func(s *lockServer) { s.Kill() }, (*lockServer).restart),
		l.ofProcess("server stopped", func(s *lockServer) { s.Pause(l.t) }, func(s *lockServer) { s.Resume(l.t) }),
		l.ofProcess("server ended", func(s *lockServer) { s.Stop() }, (*lockServer).restart),
	}
	for _, client := range []bool{true, false} {
		way := "server and store"
		if client {
			way = "client and server"
		} else if !store {
			continue
		}
		all = append(all,
			l.ofWay(way+" split", client, func(p *faultproxy.Proxy) { p.Split(true) }, (*faultproxy.Proxy).Heal),
			l.ofWay(way+": answers held", client, func(p *faultproxy.Proxy) { p.Split(false) }, (*faultproxy.Proxy).Heal),
			l.ofWay(way+" half-open", client, (*faultproxy.Proxy).SilenceOpen, func(*faultproxy.Proxy) {}),
			l.ofWay(way+" reset", client, func(p *faultproxy.Proxy) { p.Cut(faultproxy.Reset) }, func(*faultproxy.Proxy) {}),
			l.ofWay(way+" cut in a message", client, l.arm, func(p *faultproxy.Proxy) { p.Disarm() }),
		)
	}
	return all
}

// lockStores are the stores under the lock servers: a URL, and the address in it.
var lockStores = []struct {
	name  string
	start func(t *testing.T) (url, addr string)
}{
	{"sqlite", func(t *testing.T) (string, string) { return "sqlite:" + filepath.Join(t.TempDir(), "locks.db"), "" }},
	{"redis", func(t *testing.T) (string, string) {
		s := servers.Redis(t, servers.RedisOptions{})
		return s.URL(""), s.Addr()
	}},
	{"etcd", func(t *testing.T) (string, string) {
		s := servers.Etcd(t, servers.EtcdOptions{})
		return s.URL(""), s.Members[0].Addr()
	}},
	{"postgres", func(t *testing.T) (string, string) {
		s := servers.Postgres(t, servers.PostgresOptions{})
		return s.URL("postgres", ""), strings.Split(strings.Split(s.URL("postgres", ""), "@")[1], "/")[0]
	}},
}

// throughServers is the number of clients that use lock servers: two by a list, one by a
// balancer, one by proxies that buffer. One more is straight at the store.
const throughServers = 4

// TestLockServers disturbs two lock servers over one store, never both at once, and
// checks that no hold is lost: the other one could have kept each. It is for soaks only.
func TestLockServers(t *testing.T) {
	if *runFor < soak {
		return // make soak WHAT=lockservers
	}
	program := buildHoldfast(t)
	for i, store := range lockStores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			url, addr := store.start(t)
			l := &lockServers{t: t, rnd: newDice(uint64(i)), effects: make(map[string]int64)}
			for i := range l.pair {
				l.pair[i] = startLockServer(t, program, url, addr)
			}
			for range throughServers {
				l.fronts = append(l.fronts, [2]*faultproxy.Proxy{faultproxy.Between(t, l.pair[0].addr), faultproxy.Between(t, l.pair[1].addr)})
			}
			cfg := lockServerConfig(t, 21+uint64(i))
			cfg.Store, cfg.Own = url, l.faults(addr != "")
			cfg.Processes = throughServers + 1
			urls := l.urls(cfg.TTL)
			cfg.StoreOf = func(client int) string { return append(urls, url)[client] }
			lost := runLockServers(t, cfg, throughServers)
			var sum int64
			for _, n := range l.effects {
				sum += n
			}
			t.Logf("%d faults at one server: %v", sum, l.effects)
			for _, what := range lost {
				t.Errorf("lost, and the other server could have kept it: %s", what)
			}
		})
	}
}

// urls returns the URLs of the clients of the servers.
func (l *lockServers) urls(ttl time.Duration) []string {
	hosts := func(client int) []string {
		return []string{l.fronts[client][0].Addr(), l.fronts[client][1].Addr()}
	}
	list := func(hosts ...string) string { return "holdfast://" + strings.Join(hosts, ",") }
	second := hosts(1)
	slices.Reverse(second)
	var buffering []string
	for _, host := range hosts(3) {
		buffering = append(buffering, serveProxy(l.t, &buffer{host: host, limit: 2 * ttl}))
	}
	return []string{list(hosts(0)...), list(second...), list(serveProxy(l.t, newBalancer(ttl, hosts(2)...))), list(buffering...)}
}

// TestLockServerRestarts kills and ends the only lock server again and again, and starts
// it within 0.6 TTLs: no hold is lost. It is for soaks only.
func TestLockServerRestarts(t *testing.T) {
	if *runFor < soak {
		return // make soak WHAT=lockservers
	}
	program := buildHoldfast(t)
	for i, store := range lockStores[:2] {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			url, addr := store.start(t)
			s := startLockServer(t, program, url, addr)
			cfg := lockServerConfig(t, 31+uint64(i))
			rnd := newDice(cfg.Seed)
			var restarts, late int
			away := func(kind string, end func()) torture.Fault {
				return torture.Fault{Kind: kind, Weight: 20, Begin: func(int) (func() error, error) {
					end()
					begun := time.Now()
					time.Sleep(cfg.TTL * time.Duration(rnd.intN(10)) / 20)
					s.restart()
					restarts++
					if time.Since(begun) > cfg.TTL*6/10 {
						late++
					}
					return func() error { return nil }, nil
				}}
			}
			cfg.Store, cfg.Own = url, []torture.Fault{
				away("server killed", func() { s.Kill() }),
				away("server ended", func() { s.Stop() }),
			}
			cfg.StoreOf = func(int) string { return "holdfast://" + s.addr }
			lost := runLockServers(t, cfg, -1)
			t.Logf("%d restarts, of which %d took longer than 0.6 TTLs; lost: %q", restarts, late, lost)
			if len(lost) > 0 && late == 0 {
				t.Errorf("%d holds were lost", len(lost))
			}
		})
	}
}

// TestTortureThroughLockServers carries out "holdfast doctor" and "holdfast torture" with
// the URL of two lock servers. It is for soaks only.
func TestTortureThroughLockServers(t *testing.T) {
	if *runFor < soak {
		return // make soak WHAT=lockservers
	}
	program := buildHoldfast(t)
	for _, store := range lockStores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			url, addr := store.start(t)
			a, b := startLockServer(t, program, url, addr), startLockServer(t, program, url, addr)
			through := "holdfast://" + a.addr + "," + b.addr
			for _, args := range [][]string{{"doctor"}, {"torture", "--json", "--duration", runFor.String(), "--slack", "10s", "--ttl", "3s"}} {
				cmd := exec.CommandContext(t.Context(), program, append(args, "--store", through)...)
				out, err := cmd.CombinedOutput()
				t.Logf("holdfast %s:\n%s", args[0], out)
				if err != nil {
					t.Errorf("holdfast %s: %v", args[0], err)
				}
			}
		})
	}
}
