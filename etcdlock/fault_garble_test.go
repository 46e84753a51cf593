package etcdlock_test

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// TestF11_GarbledAnswers: answers that cannot be understood.
func TestF11_GarbledAnswers(t *testing.T) {
	t.Parallel()
	s := backends.SharedEtcd(t, backends.EtcdNewest)
	g := backends.Garble(t, s.Members[0].Addr())
	d, err := etcdlock.Open(ctx, fmt.Sprintf("etcd://127.0.0.1:%d?prefix=garbled/", g.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	backends.GarbledAnswers(t, g, d, open(t, s, "prefix=garbled/"))
}
