package zklock_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestF11_GarbledAnswers: answers that cannot be understood.
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
	backends.GarbledAnswers(t, g, d, direct)
}
