package backends

import (
	"regexp"
	"strconv"
	"testing"
)

// helloVersion finds the server's version in the answer to HELLO.
var helloVersion = regexp.MustCompile(`(\$7\r\nversion\r\n)\$\d+\r\n[^\r]*`)

// age makes the last n nodes what they were before Redis 7, as far as clients can
// tell: HELLO says so, and there are no messages of a slot. What says it stands
// before each node, and the node tells clients to come by there.
func (c *RedisCluster) age(t testing.TB, n int) {
	t.Helper()
	c.fronts = make(map[*RedisServer]*Garbler)
	for _, s := range c.Nodes[len(c.Nodes)-n:] {
		s.Do(t, "ACL", "SETUSER", "default", "-spublish", "-ssubscribe", "-sunsubscribe")
		g := Garble(t, s.Addr())
		g.Spoil(func(answer []byte) (instead []byte, end bool) {
			return helloVersion.ReplaceAll(answer, []byte("${1}$$6\r\n6.2.14")), false
		})
		s.Do(t, "CONFIG", "SET", "cluster-announce-port", strconv.Itoa(g.Port))
		c.fronts[s] = g
	}
}

// awaitFronts waits until every node sends clients to what age made.
func (c *RedisCluster) awaitFronts(t testing.TB) {
	t.Helper()
	behind := make(map[int64]bool) // ports
	for s := range c.fronts {
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
