//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF132_DefaultTTLFitsTheStore: on a store that does not allow the default,
// every verb works without --ttl, with the nearest that the store allows; one
// that is named is refused.
func TestF132_DefaultTTLFitsTheStore(t *testing.T) {
	t.Parallel()
	s := servers.ZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxSessionTimeout=10000"}})
	url := s.URL("", "")
	p := start(t, sh(url, "m", untilStop)...).says("out", "in")
	for _, line := range []string{"ls", "show m", "doctor", "__complete show m"} {
		r := run(t, append([]string{"--store", url}, strings.Fields(line)...)...)
		if r.status != 0 && line != "doctor" || strings.Contains(r.err, "TTL") {
			t.Errorf("%s: %+v", line, r)
		}
		if line == "show m" && !strings.Contains(r.out, "held") {
			t.Errorf("show: %+v", r)
		}
	}
	run(t, "--store", url, "break", "m", "--yes").want(t, 0, "broke the ticket", "")
	p.end().want(t, exitLost, "in", "lost")
	run(t, sh(url, "--grace 4s m", "true")...).want(t, 0, "", "")
	run(t, sh(url, "--grace 6s m", "true")...).want(t, exitUsage, "", "half of the TTL, ")
	run(t, sh(url, "--ttl 30s m", "true")...).want(t, exitUsage, "", "above this store's maximum of ")
}
