package redislock

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/redisrights"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// documentedRights reads the rights out of the package's documentation.
func documentedRights(t *testing.T, where, prefix string) []string {
	t.Helper()
	return redisrights.Documented(t, "docs.go", where, prefix)
}

// opened converts the results of a function that opens a driver.
func opened[D driver.Driver](d D, err error) (driver.Driver, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// rightsOn describes the users of one server.
func rightsOn(t *testing.T, s *servers.RedisServer) *drivertest.Rights {
	return redisrights.Users(t, documentedRights(t, "", DefaultPrefix), []*servers.RedisServer{s}, func(user *url.Userinfo) (driver.Driver, error) {
		return opened(Open(context.Background(), fmt.Sprintf("redis://%s@%s", user, s.Addr())))
	})
}

// rightsBehind describes the users of the servers behind Sentinels.
func rightsBehind(t *testing.T, s *servers.RedisSentinels, query string) *drivertest.Rights {
	return redisrights.Users(t, documentedRights(t, "", DefaultPrefix), s.Nodes, func(user *url.Userinfo) (driver.Driver, error) {
		return opened(OpenSentinel(context.Background(), strings.Replace(s.URL(query), "://", "://"+user.String()+"@", 1)))
	})
}

// rightsIn describes the users of a cluster.
func rightsIn(t *testing.T, c *servers.RedisCluster) *drivertest.Rights {
	return redisrights.Users(t, documentedRights(t, " in a cluster", DefaultPrefix), c.Nodes, func(user *url.Userinfo) (driver.Driver, error) {
		return opened(OpenCluster(context.Background(), strings.Replace(c.URL(""), "://", "://"+user.String()+"@", 1)))
	})
}
