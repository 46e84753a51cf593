package backends

import (
	"context"
	"strings"
)

// Serves says whether the member answers, and has a leader that a majority
// follows. It is for members without TLS.
func (m *EtcdMember) Serves(ctx context.Context) bool { return m.healthy(ctx) == nil }

// Leads says whether the member takes itself for the leader of its cluster, which
// one that is cut off from the others does for a while. One that does not answer
// does not. It is for members without TLS.
func (m *EtcdMember) Leads(ctx context.Context) bool {
	page, err := m.get(ctx, "/metrics")
	return err == nil && strings.Contains(page, "\netcd_server_is_leader 1\n")
}
