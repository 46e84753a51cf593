//go:build unix

package cli

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF107_RunSaysThatTheStoreIsNotReady: a server that has just started without
// data grants nothing for a while. Run waits for that, and says so; with
// --no-wait it ends at once.
func TestF107_RunSaysThatTheStoreIsNotReady(t *testing.T) {
	t.Parallel()
	url := servers.Redis(t, servers.RedisOptions{}).URL("restart_guard=15s")
	now := start(t, sh(url, "--ttl 15s --no-wait m", "true")...)
	p := start(t, sh(url, "--ttl 15s --wait 100s m", "echo in")...)
	asJSON := start(t, append([]string{"--json"}, sh(url, "--ttl 15s --wait 100s m", "echo in")...)...)
	now.end().want(t, exitUnavailable, "", "")
	p.says("err", "holdfast: waiting for m, the store is not ready: ")
	asJSON.says("err", `"event":"waiting"`)
	p.end().want(t, 0, "in\n", "")
	asJSON.end().want(t, 0, "in\n", "")
}
