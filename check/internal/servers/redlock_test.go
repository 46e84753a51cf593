package servers

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/check/torture"
	"github.com/holdfast-go/holdfast/drivertest/cuts"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// redlock is a majority of this many servers, which keep their data.
func redlock(t *testing.T, rnd *dice, many int) scene {
	nodes, url := independent(t, many, backends.RedisOptions{Durable: true})
	return scene{url: url, own: strikes(t, rnd, nodes, func(s *backends.RedisServer) { s.Restart(t) })}
}

func independent(t *testing.T, many int, opts backends.RedisOptions) (nodes []*backends.RedisServer, url string) {
	var hosts []string
	for range many {
		s := backends.Redis(t, opts)
		nodes, hosts = append(nodes, s), append(hosts, s.Addr())
	}
	return nodes, "redlock://" + strings.Join(hosts, ",")
}

// each puts a proxy between each client and each of the servers of a majority,
// and adds what can happen there: a client is cut off from fewer than half of
// them, so that it goes on, or from a majority, so that it cannot. What was kept
// back arrives in the end, late.
func (s scene) each(t *testing.T, rnd *dice, addrs []string) scene {
	var proxies [clients][]*cuts.Proxy
	var urls [clients]string
	for c := range clients {
		urls[c] = s.url
		for _, addr := range addrs {
			p := cuts.Between(t, addr)
			proxies[c], urls[c] = append(proxies[c], p), strings.Replace(urls[c], addr, p.Addr(), 1)
		}
	}
	s.of = func(client int) string { return urls[client] }
	cut := func(least, most int) func(int) (func() error, error) {
		return func(client int) (func() error, error) {
			first, many := rnd.roll(len(addrs)), least+rnd.roll(most-least+1)
			both := rnd.roll(3) > 0 // or the client hears no answers
			each := func(do func(*cuts.Proxy)) {
				for i := range many {
					do(proxies[client][(first+i)%len(addrs)])
				}
			}
			each(func(p *cuts.Proxy) { p.Split(both) })
			return func() error { each((*cuts.Proxy).Heal); return nil }, nil
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
func redlockOfFive(t *testing.T, rnd *dice) scene {
	s := redlock(t, rnd, 5)
	return s.each(t, rnd, strings.Split(strings.TrimPrefix(s.url, "redlock://"), ","))
}

// redlockThatForgets has this many of five nodes crash at once, and come back
// empty at once.
func redlockThatForgets(t *testing.T, rnd *dice, many int, query string) scene {
	nodes, url := independent(t, 5, backends.RedisOptions{})
	return scene{url: url + query, own: []torture.Fault{
		once("data lost", func() error {
			first := rnd.roll(len(nodes))
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
