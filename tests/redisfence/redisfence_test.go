// Package redisfence_test runs the guard of fence/redisfence on Redis, with a client that
// the module of the core does not require.
package redisfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/testkit/paused"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) {
	paused.Child(func(ctx context.Context, target string, t fence.Token) (string, error) {
		c, err := connect(target)
		if err != nil {
			return "", err
		}
		defer c.Close()
		if err := c.Do(ctx, c.B().Set().Key("naive").Value("old data").Build()).Error(); err != nil {
			return "", err
		}
		_, err = put(ctx, c, "{data}", t, "old data")
		return "written", err
	})
	servers.Main(m)
}

func connect(url string) (rueidis.Client, error) {
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	opt.DisableCache, opt.ForceSingleClient = true, true
	return rueidis.NewClient(opt)
}

func dial(t testing.TB, s *servers.RedisServer) rueidis.Client {
	t.Helper()
	c, err := connect("redis://" + s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// putScript is a user's script: it writes, and returns the former value.
var putScript = redisfence.Script(`
local before = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1])
return before or #KEYS .. ' key, ' .. #ARGV .. ' argument'
`)

func put(ctx context.Context, c rueidis.Client, key string, t fence.Token, value string) (string, error) {
	keys := redisfence.Keys(redisfence.Key(key), key)
	args, err := redisfence.Args(t, value)
	if err != nil {
		return "", err
	}
	s, err := rueidis.NewLuaScript(putScript).Exec(ctx, c, keys, args).ToString()
	return s, redisfence.Err(err, t)
}

func tok(v uint64, owner string) fence.Token { return fence.Token{Value: v, Owner: owner} }

// TestScriptAdmitsByToken checks the tokens that a script admits and refuses.
//
// Covers: F20, F38.
func TestScriptAdmitsByToken(t *testing.T) {
	c := dial(t, servers.SharedRedis(t))
	reader := func(v uint64) fence.Token { return fence.Token{Value: v, Shared: true} }
	for name, steps := range map[string][]struct {
		t    fence.Token
		want error
	}{
		"lower is refused":         {{tok(5, ""), nil}, {tok(4, ""), fence.ErrStale}, {tok(5, ""), nil}},
		"longer is greater":        {{tok(99, ""), nil}, {tok(100, ""), nil}, {tok(99, ""), fence.ErrStale}},
		"zero is no token":         {{tok(0, ""), fence.ErrNoToken}},
		"one number of two owners": {{tok(5, "a"), nil}, {tok(5, "b"), fence.ErrStale}, {tok(5, ""), fence.ErrStale}, {tok(5, "a"), nil}, {tok(6, "b"), nil}},
		"a reader never raises":    {{reader(9), nil}, {tok(5, ""), nil}, {reader(9), nil}, {tok(7, ""), nil}},
		"a reader before a writer": {{tok(5, ""), nil}, {reader(3), fence.ErrStale}},
		"beyond 53 bits":           {{tok(1<<53+1, ""), nil}, {tok(1<<53, ""), fence.ErrStale}, {tok(1<<64-1, ""), nil}, {tok(1<<64-2, ""), fence.ErrStale}},
		"any text is an owner":     {{tok(5, "ä \"x\"\r\n+OK"), nil}, {tok(4, "%s"), fence.ErrStale}, {tok(5, "ä \"x\"\r\n+OK"), nil}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, s := range steps {
				_, err := put(t.Context(), c, "rules/"+name, s.t, "x")
				if !errors.Is(err, s.want) {
					t.Fatalf("step %d: %v gets %v, want %v", i, s.t, err, s.want)
				}
			}
		})
	}
}

// TestScriptOfTheUser checks that a user's script finds its keys and arguments,
// and that its answer is returned.
func TestScriptOfTheUser(t *testing.T) {
	s := servers.SharedRedis(t)
	c := dial(t, s)
	if got, err := put(t.Context(), c, "k", tok(5, "a"), "one"); err != nil || got != "1 key, 1 argument" {
		t.Errorf("the first write answers %q, %v", got, err)
	}
	if got, err := put(t.Context(), c, "k", tok(6, "b"), "two"); err != nil || got != "one" {
		t.Errorf("the second write answers %q, %v", got, err)
	}
	_, err := put(t.Context(), c, "k", tok(5, "a"), "three")
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || stale.Highest != tok(6, "b") || stale.Given != tok(5, "a") {
		t.Errorf("the refusal is %#v", err)
	}
	if got := s.Do(t, "GET", "k"); got != "two" {
		t.Errorf("there is %v", got)
	}
	if ttl := s.Do(t, "TTL", redisfence.Key("k")); ttl != int64(-1) {
		t.Errorf("the guard goes in %v s", ttl)
	}
	// Other errors are returned unchanged.
	s.Do(t, "SADD", "set", "x")
	if _, err := put(t.Context(), c, "set", tok(5, ""), ""); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a key of the wrong type: %v", err)
	}
}

// TestKey checks that data and guard have equal tags, so that they are in one
// slot of a cluster, unless the data's key has braces and no tag.
func TestKey(t *testing.T) {
	for key, want := range map[string]string{
		"stock/7":     "holdfast_fence:{stock/7}",
		"{stock}/7":   "holdfast_fence:{stock}/7",
		"a{}b":        "holdfast_fence:a{}b",
		"a{b":         "holdfast_fence:a{b",
		"x{y}{z}":     "holdfast_fence:x{y}{z}",
		"":            "holdfast_fence:{}",
		"with } only": "holdfast_fence:with } only",
	} {
		if got := redisfence.Key(key); got != want {
			t.Errorf("Key(%q) = %q, want %q", key, got, want)
		}
	}
	keys := make([]string, 1, 8)
	keys[0] = "a"
	if one, two := redisfence.Keys("g", keys...), redisfence.Keys("h", keys...); one[1] != "g" || two[1] != "h" {
		t.Errorf("two calls share their memory: %v %v", one, two)
	}
}

// TestF12_PausedHolder stops a holder past its lease. Another process takes
// over and writes, and the first one wakes up and writes as well: once without
// the guard, once with it.
func TestF12_PausedHolder(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	c := dial(t, s)
	h := paused.Start(t, "redis://"+s.Addr())
	s.Do(t, "SET", "naive", "new data")
	if _, err := put(t.Context(), c, "{data}", h.Next, "new data"); err != nil {
		t.Fatal(err)
	}
	if said, refused := h.Wake(); !refused {
		t.Errorf("the late write was not refused: %s", said)
	}
	if got := s.Do(t, "GET", "naive"); got != "old data" {
		t.Errorf("without the guard there is %q: the test has not shown the damage", got)
	}
	if got := s.Do(t, "GET", "{data}"); got != "new data" {
		t.Errorf("with the guard there is %q", got)
	}
}
