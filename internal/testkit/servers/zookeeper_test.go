package servers

import (
	"strings"
	"testing"
)

func TestZooKeeper(t *testing.T) {
	s := ZooKeeper(t, ZooKeeperOptions{Members: 3})
	leaders := 0
	for _, m := range s.Members {
		if m.Leads(t) {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("%d members lead, want 1", leaders)
	}
	m := s.Members[0]
	m.Kill()
	m.Restart(t)
	if answer := m.Ask(t, "ruok"); answer != "imok" {
		t.Errorf("after a restart the member says %q", answer)
	}
	if u := s.URL("/x", "acl=open"); strings.Count(u, ",") != 2 || !strings.HasSuffix(u, "/x?tick=1s&dial_timeout=10s&acl=open") {
		t.Errorf("URL is %q", u)
	}
}
