package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// bytesOnly sends and receives messages as raw bytes: the Go types of the Lock
// service are in the server's module, which is too large a dependency.
type bytesOnly struct{}

func (bytesOnly) Name() string { return "proto" }

func (bytesOnly) Marshal(m any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*m.(*[]byte))}, nil
}

func (bytesOnly) Unmarshal(b mem.BufferSlice, m any) error {
	*m.(*[]byte) = b.Materialize()
	return nil
}

// lockRPC calls v3lockpb.Lock/Lock, which blocks until the lock is held, and
// returns the key. jetcd's Lock client does the same.
func lockRPC(ctx context.Context, cli *clientv3.Client, name string, lease clientv3.LeaseID) (key []byte, err error) {
	req := protowire.AppendTag(nil, 1, protowire.BytesType)
	req = protowire.AppendString(req, name)
	req = protowire.AppendTag(req, 2, protowire.VarintType)
	req = protowire.AppendVarint(req, uint64(lease))
	var resp []byte
	if err := cli.ActiveConnection().Invoke(ctx, "/v3lockpb.Lock/Lock", &req, &resp, grpc.ForceCodecV2(bytesOnly{})); err != nil {
		return nil, err
	}
	for len(resp) > 0 {
		num, typ, n := protowire.ConsumeTag(resp)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		resp = resp[n:]
		if num == 2 && typ == protowire.BytesType {
			key, n := protowire.ConsumeBytes(resp)
			return key, protowire.ParseError(min(n, 0))
		}
		if n = protowire.ConsumeFieldValue(num, typ, resp); n < 0 {
			return nil, protowire.ParseError(n)
		}
		resp = resp[n:]
	}
	return nil, errors.New("the answer has no key")
}

func unlockRPC(ctx context.Context, cli *clientv3.Client, key []byte) error {
	req := protowire.AppendTag(nil, 1, protowire.BytesType)
	req = protowire.AppendBytes(req, key)
	var resp []byte
	return cli.ActiveConnection().Invoke(ctx, "/v3lockpb.Lock/Unlock", &req, &resp, grpc.ForceCodecV2(bytesOnly{}))
}

// TestLockRPC checks that the server's Lock service, which jetcd uses, and our
// locks exclude each other, and that each release wakes the other side.
func TestLockRPC(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.SharedEtcd(t, v)
		// With this TTL, only events can wake our client in time.
		c, cli := locks(t, s, "", holdfast.WithTTL(time.Hour)), client(t, s, nil)
		lease, err := cli.Grant(ctx, 600)
		if err != nil {
			t.Fatal(err)
		}
		h := lock(t, c, "rpc")
		type answer struct {
			key []byte
			err error
		}
		theirs := make(chan answer, 1)
		limit := within(t, time.Minute)
		go func() {
			key, err := lockRPC(limit, cli, "rpc", lease.ID)
			theirs <- answer{key, err}
		}()
		waiting(t, c, "rpc", 2)
		select {
		case a := <-theirs:
			t.Fatalf("the service gives what we hold: %+v", a)
		case <-time.After(100 * time.Millisecond):
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		a := <-theirs
		if a.err != nil || !strings.HasPrefix(string(a.key), "rpc/") {
			t.Fatalf("the service answers %q, %v", a.key, a.err)
		}
		if _, err := c.Mutex("rpc").TryLock(ctx); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
		got := locking(t, c, "rpc")
		waiting(t, c, "rpc", 2)
		select {
		case <-got:
			t.Fatal("we hold what the service gave away")
		case <-time.After(100 * time.Millisecond):
		}
		if err := unlockRPC(limit, cli, a.key); err != nil {
			t.Fatal(err)
		}
		again := taken(t, got)
		if again.Token() <= h.Token() {
			t.Errorf("token %d after %d", again.Token(), h.Token())
		}
		if err := again.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
