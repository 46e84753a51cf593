package etcdlock_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF11_GarbledAnswers runs the suite's cases of answers that cannot be
// decoded.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	g := servers.Garble(t, s.Members[0].Addr())
	d, err := etcdlock.Open(ctx, fmt.Sprintf("etcd://127.0.0.1:%d?prefix=garbled/", g.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	servers.GarbledAnswers(t, g, d, open(t, s, "prefix=garbled/"))
}
