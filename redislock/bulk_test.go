package redislock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF130_NamesBesideLargeValues checks that Names lists all names, and reads
// no value, if other programs keep much data on the same server, also under
// keys that look like a lock's.
func TestF130_NamesBesideLargeValues(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	s.Do(t, "EVAL", `for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'holdfast:text:' .. i, 'x') end
		local value = string.rep('x', 4000000)
		for i = 1, tonumber(ARGV[2]) do
			redis.call('SET', 'large:' .. i, value)
			redis.call('HSET', 'holdfast:lookalike:' .. i, 'field', value)
			redis.call('RPUSH', '{large:' .. i .. '}:list', value)
		end`, "0", "20000", "20")
	d, err := Open(t.Context(), s.URL("timeout=30s"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := []string{"a", "text:5", "z"} // nothing else has a ticket
	s.Do(t, "DEL", "holdfast:text:5")
	for _, name := range want {
		tk := &driver.Ticket{ID: "bulk:" + name, Name: name, Units: 1, Limit: 1, TTL: time.Hour}
		if p, err := d.Join(context.Background(), tk, true); err != nil || p.State != driver.Held {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	var got []string
	for name, err := range d.Names(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
}
