package etcdlock_test

import (
	"fmt"

	"github.com/holdfast-go/holdfast/drivertest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// foreigners are the keys that other programs keep in queues: locks of etcd's
// own recipe, whose keys end with their lease, and keys that are not locks'.
func foreigners(cli *clientv3.Client, prefix string) []drivertest.Foreign {
	put := func(t drivertest.T, name string, key func(lease clientv3.LeaseID) string, leased bool) func() {
		lease, err := cli.Grant(ctx, 60)
		if err != nil {
			t.Fatalf("grant: %v", err)
		}
		var opts []clientv3.OpOption
		if leased {
			opts = append(opts, clientv3.WithLease(lease.ID))
		}
		at := prefix + name + "/" + key(lease.ID)
		if _, err := cli.Put(ctx, at, "", opts...); err != nil {
			t.Fatalf("put %s: %v", at, err)
		}
		return func() {
			if _, err := cli.Delete(ctx, at); err != nil {
				t.Errorf("delete %s: %v", at, err)
			}
			if _, err := cli.Revoke(ctx, lease.ID); err != nil {
				t.Errorf("revoke: %v", err)
			}
		}
	}
	return []drivertest.Foreign{
		{
			Name: "the Lock RPC, or concurrency.Mutex",
			Put: func(t drivertest.T, name string) func() {
				return put(t, name, func(id clientv3.LeaseID) string { return fmt.Sprintf("%x", id) }, true)
			},
			Outcome: func(_, limit int64) drivertest.ForeignOutcome {
				if limit == 1 {
					return drivertest.Waits
				}
				return drivertest.Refused
			},
		},
		{
			Name: "a key without a lease", ErrorNames: "config",
			Put: func(t drivertest.T, name string) func() {
				return put(t, name, func(clientv3.LeaseID) string { return "config" }, false)
			},
		},
		{
			Name: "a key that names another lease than its own", ErrorNames: "7777",
			Put: func(t drivertest.T, name string) func() {
				return put(t, name, func(clientv3.LeaseID) string { return "7777" }, true)
			},
		},
	}
}
