package redislock

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestOpenRefusesALaterLayout checks that a server, and a cluster, that a later version
// uses in another way is refused when it is opened, and left unchanged, and that a
// layout that this version knows is accepted.
func TestOpenRefusesALaterLayout(t *testing.T) {
	one := servers.Redis(t, servers.RedisOptions{})
	several := servers.RedisClusterOf(t, servers.RedisClusterOptions{NoReplicas: true})
	for name, c := range map[string]struct {
		open func(context.Context) (driver.Driver, error)
		do   func(words ...string) any // at the server that has the key
	}{
		"one server": {
			func(ctx context.Context) (driver.Driver, error) { return orNil(Open(ctx, one.URL(""))) },
			func(words ...string) any { return one.Do(t, words...) },
		},
		"cluster": {
			func(ctx context.Context) (driver.Driver, error) { return orNil(OpenCluster(ctx, several.URL(""))) },
			func(words ...string) any { return several.Primary(t, wire.Slot("holdfast_layout")).Do(t, words...) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.do("SET", "holdfast_layout", "2")
			before := c.do("DBSIZE")
			d, err := c.open(t.Context())
			if err == nil {
				_ = d.Close()
			}
			if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "key holdfast_layout is 2, this version knows 1; upgrade this program first") {
				t.Errorf("layout 2: %v", err)
			}
			if after := c.do("DBSIZE"); after != before || c.do("GET", "holdfast_layout") != "2" {
				t.Errorf("the server has changed: %v keys, then %v", before, after)
			}
			c.do("SET", "holdfast_layout", "1")
			if d, err = c.open(t.Context()); err != nil {
				t.Fatalf("layout 1: %v", err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// orNil returns no driver in place of a nil pointer.
func orNil[D driver.Driver](d D, err error) (driver.Driver, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}
