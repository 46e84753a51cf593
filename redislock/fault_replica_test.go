package redislock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF40_ReplicaGetsNoRequest uses a client that sends reads to a replica, and
// pauses the replica: no request about a lock goes there.
func TestF40_ReplicaGetsNoRequest(t *testing.T) {
	t.Parallel()
	primary := servers.Redis(t, servers.RedisOptions{})
	replica := servers.Redis(t, servers.RedisOptions{})
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica.Do(t, "REPLICAOF", host, port)
	eventually(t, "the replica follows", func() bool { return replica.Info(t, "replication", "master_link_status") == "up" })
	read := 0
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{primary.Addr()}, DisableCache: true, ReadBufferEachConn: 16 << 10, WriteBufferEachConn: 16 << 10, RingScaleEachConn: 8,
		Standalone:     rueidis.StandaloneOption{ReplicaAddress: []string{replica.Addr()}},
		SendToReplicas: func(cmd rueidis.Completed) bool { read++; return cmd.IsReadOnly() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if client.Do(t.Context(), client.B().Get().Key("x").Build()); read == 0 {
		t.Fatal("the client asks no replica")
	}
	d, err := New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := holdfast.New(d, holdfast.WithTTL(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	other, err := holdfast.New(openOn(t, primary, ""), holdfast.WithTTL(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	replica.Pause(t)
	defer replica.Resume(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	count, last := 0, uint64(0)
	for range 20 {
		for _, c := range []*holdfast.Client{mine, other} {
			h, err := c.Mutex("n").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if h.Token() <= last {
				t.Errorf("token %d after %d", h.Token(), last)
			}
			last = h.Token()
			count++
			if l, err := c.Inspect(ctx, "n"); err != nil || len(l.Holders)+len(l.Waiters) != 1 {
				t.Errorf("the line is %+v, %v", l.Holders, err)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		}
	}
}
