package servers

import (
	"regexp"
	"strconv"
	"testing"
)

// helloVersion finds the server's version in the answer to HELLO.
var helloVersion = regexp.MustCompile(`(\$7\r\nversion\r\n)\$\d+\r\n[^\r]*`)

// pretendOlder makes the last n nodes look older than Redis 7 to clients: HELLO
// reports such a version, and there are no messages of a slot. A proxy before
// each of these nodes changes the answers, and the node announces the proxy's
// address to clients.
func (c *RedisCluster) pretendOlder(t testing.TB, n int) {
	t.Helper()
	c.proxies = make(map[*RedisServer]*Garbler)
	for _, s := range c.Nodes[len(c.Nodes)-n:] {
		s.Do(t, "ACL", "SETUSER", "default", "-spublish", "-ssubscribe", "-sunsubscribe")
		g := Garble(t, s.Addr())
		g.Spoil(func(answer []byte) (instead []byte, end bool) {
			return helloVersion.ReplaceAll(answer, []byte("${1}$$6\r\n6.2.14")), false
		})
		s.Do(t, "CONFIG", "SET", "cluster-announce-port", strconv.Itoa(g.Port))
		c.proxies[s] = g
	}
}

// awaitProxies waits until every node announces the proxies that pretendOlder
// made.
func (c *RedisCluster) awaitProxies(t testing.TB) {
	t.Helper()
	behind := make(map[int64]bool) // ports
	for s := range c.proxies {
		behind[int64(s.Port)] = true
	}
	waitFor(t, "the nodes tell each other's new ports", func() bool {
		for _, s := range c.Nodes {
			list, _ := s.Do(t, "CLUSTER", "SLOTS").([]any)
			for _, v := range list {
				for _, node := range v.([]any)[2:] {
					if behind[node.([]any)[1].(int64)] {
						return false
					}
				}
			}
		}
		return true
	})
}
