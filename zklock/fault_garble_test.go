package zklock_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestF11_GarbledAnswers: answers that cannot be understood. Each takes its time,
// since a new connection is made after a second at the earliest: two ways of them
// are left out, which the client library cannot tell from the others.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := backends.SharedZooKeeper(t)
	m := s.Members[0]
	g := backends.Garble(t, m.Addr())
	url := s.URL("", "")
	direct := open(t, url)
	defer direct.Close()
	d := open(t, strings.Replace(url, m.Addr(), g.Addr(), 1))
	defer d.Close()
	backends.GarbledAnswers(t, g, d, direct, "nothing but zeros", "another protocol")
}
