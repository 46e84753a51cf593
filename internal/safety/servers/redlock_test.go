package servers

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/safety/torture"
	"github.com/holdfast-go/holdfast/internal/testkit/faultproxy"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// redlock is a majority of this many servers, which keep their data.
func redlock(t *testing.T, rnd *faultSource, many int) deployment {
	nodes, url := independent(t, many, servers.RedisOptions{Durable: true})
	return deployment{url: url, own: dataKeepingFaults(t, rnd, nodes, func(s *servers.RedisServer) { s.Restart(t) })}
}

func independent(t *testing.T, many int, opts servers.RedisOptions) (nodes []*servers.RedisServer, url string) {
	var hosts []string
	for range many {
		s := servers.Redis(t, opts)
		nodes, hosts = append(nodes, s), append(hosts, s.Addr())
	}
	return nodes, "redlock://" + strings.Join(hosts, ",")
}

// proxyEachServer puts a proxy between each client and each of the servers of a
// majority, and adds the faults of proxies: a client is cut off from fewer than
// half of the servers, so that it goes on, or from a majority, so that it
// cannot. Messages that were held back arrive late, in the end.
func (s deployment) proxyEachServer(t *testing.T, rnd *faultSource, addrs []string) deployment {
	var proxies [clients][]*faultproxy.Proxy
	var urls [clients]string
	for c := range clients {
		urls[c] = s.url
		for _, addr := range addrs {
			p := faultproxy.Between(t, addr)
			proxies[c], urls[c] = append(proxies[c], p), strings.Replace(urls[c], addr, p.Addr(), 1)
		}
	}
	s.of = func(client int) string { return urls[client] }
	cut := func(least, most int) func(int) (func() error, error) {
		return func(client int) (func() error, error) {
			first, many := rnd.intN(len(addrs)), least+rnd.intN(most-least+1)
			both := rnd.intN(3) > 0 // otherwise the client receives no answers
			each := func(do func(*faultproxy.Proxy)) {
				for i := range many {
					do(proxies[client][(first+i)%len(addrs)])
				}
			}
			each(func(p *faultproxy.Proxy) { p.Split(both) })
			return func() error { each((*faultproxy.Proxy).Heal); return nil }, nil
		}
	}
	half := len(addrs) / 2
	s.own = append(s.own,
		torture.Fault{Kind: "cut off from a minority", Weight: 20, Client: true, Begin: cut(1, half)},
		torture.Fault{Kind: "cut off from a majority", Weight: 15, Client: true, Begin: cut(half+1, len(addrs))})
	return s
}

// redlockOfFive has servers that are killed and stopped, and clients that are
// cut off from some of them.
func redlockOfFive(t *testing.T, rnd *faultSource) deployment {
	s := redlock(t, rnd, 5)
	return s.proxyEachServer(t, rnd, strings.Split(strings.TrimPrefix(s.url, "redlock://"), ","))
}

// redlockThatForgets lets this many of five nodes crash at once, and come back
// empty at once.
func redlockThatForgets(t *testing.T, rnd *faultSource, many int, query string) deployment {
	nodes, url := independent(t, 5, servers.RedisOptions{})
	return deployment{url: url + query, own: []torture.Fault{
		oneFault("data lost", func() error {
			first := rnd.intN(len(nodes))
			for i := range many { // none may vote again before all have forgotten
				nodes[(first+i)%len(nodes)].Kill()
			}
			for i := range many {
				nodes[(first+i)%len(nodes)].Restart(t)
			}
			return nil
		}, func() {}),
	}}
}
