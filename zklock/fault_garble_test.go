package zklock_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF11_GarbledAnswers checks answers that cannot be parsed. Each case takes
// a second or more, the time until a new connection is made. So the test leaves
// out two kinds of garbling that look to the client library like others.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	m := s.Members[0]
	g := servers.Garble(t, m.Addr())
	url := s.URL("", "")
	direct := open(t, url)
	defer direct.Close()
	d := open(t, strings.Replace(url, m.Addr(), g.Addr(), 1))
	defer d.Close()
	servers.GarbledAnswers(t, g, d, direct, "nothing but zeros", "another protocol")
}
