package servers

import (
	"context"
	"strings"
)

// Serves reports whether the member answers, and has a leader that a majority
// follows. It is for members without TLS.
func (m *EtcdMember) Serves(ctx context.Context) bool { return m.healthy(ctx) == nil }

// Leads reports whether the member believes that it leads its cluster, as a
// leader that is cut off from the others does for a while. It is false if the
// member does not answer. It is for members without TLS.
func (m *EtcdMember) Leads(ctx context.Context) bool {
	page, err := m.get(ctx, "/metrics")
	return err == nil && strings.Contains(page, "\netcd_server_is_leader 1\n")
}
