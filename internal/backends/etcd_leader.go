package backends

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// Serves says whether the member answers, and has a leader that a majority
// follows. It is for members without TLS.
func (m *EtcdMember) Serves(ctx context.Context) bool { return m.healthy(ctx) == nil }

// Leads says whether the member takes itself for the leader of its cluster, which
// one that is cut off from the others does for a while. One that does not answer
// does not. It is for members without TLS.
func (m *EtcdMember) Leads(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Addr()+"/metrics", nil)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(body), "\netcd_server_is_leader 1\n")
}
