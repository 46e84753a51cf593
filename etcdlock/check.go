package etcdlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Check implements [driver.Checker]. It also reports as a finding anything that
// the client's user has no right to read.
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.life.checkOpen(ctx); err != nil {
		return nil, err
	}
	var took []time.Duration
	var revision int64
	for range 5 {
		start := time.Now()
		r, err := d.read(ctx, limit(keysOnly(all(d.keys.prefix+"%", d.keys.prefix+"&")), 1))
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
		revision = r.Header.Revision
	}
	slices.Sort(took)
	fs := []driver.Finding{d.checkWrite(ctx), d.checkMarks(ctx), checkTrip(took[len(took)/2])}
	fs = append(fs, d.checkMembers(ctx)...)
	return append(fs, d.checkHistory(ctx, revision)), nil
}

func checkTrip(trip time.Duration) driver.Finding {
	f := driver.Finding{Topic: "round trip", Detail: fmt.Sprintf("a read by a majority takes %v", trip.Round(10*time.Microsecond))}
	if trip > 100*time.Millisecond {
		f.Level = driver.Warning
		f.Advice = "move the clients nearer to the members, or choose TTLs above half a minute"
	}
	return f
}

// checkWrite makes a key under a lease, as a lock does, and deletes both again.
func (d *Driver) checkWrite(ctx context.Context) driver.Finding {
	f := driver.Finding{Topic: "writing", Detail: "leases and keys can be made and deleted"}
	err := func() error {
		lease, err := d.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 1})
		if err != nil {
			return classed(ctx, err)
		}
		defer d.revoke(ctx, lease.ID)
		if lease.TTL > 2 {
			f.Level = driver.Warning
			f.Detail = fmt.Sprintf("the servers' shortest lease is %d s: a client that died blocks others at least that long", lease.TTL)
			f.Advice = "expect that of short TTLs, or lower --election-timeout"
		}
		key := d.keys.wake(fmt.Sprintf("check-%x", rand.Uint64()))
		_, err = d.txn(ctx, nil, []*pb.RequestOp{opPut(key, "", lease.ID)}, nil)
		return err
	}()
	if err != nil {
		f.Level, f.Detail = driver.Problem, "no lock can be taken: "+err.Error()
		f.Advice = "give the user the right to read and write all keys that begin with the prefix"
		if full(err) {
			f.Advice = "compact and defragment the members, raise --quota-backend-bytes, set --auto-compaction-retention, and disarm the alarm"
		}
	}
	return f
}

// checkMarks asks for the rights that marks need, by a transaction whose condition is
// never met: the servers check the rights of its requests first.
func (d *Driver) checkMarks(ctx context.Context) driver.Finding {
	f := driver.Finding{Topic: "once", Detail: "slots that are done can be read and recorded"}
	key := d.keys.done(fmt.Sprintf("check-%x", rand.Uint64()))
	never := &pb.Compare{Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_LESS, TargetUnion: &pb.Compare_ModRevision{ModRevision: 0}}
	if _, err := d.txn(ctx, []*pb.Compare{never}, []*pb.RequestOp{opPut(key, "", 0)}, nil); err != nil {
		f.Level, f.Detail = driver.Problem, "Once cannot record slots that are done: "+err.Error()
		f.Advice = "give the user the right to read and write all keys that begin with " + d.keys.done("")
	}
	return f
}

// checkMembers asks each endpoint of the client for the status of its member.
func (d *Driver) checkMembers(ctx context.Context) []driver.Finding {
	list, err := d.cli.MemberList(ctx)
	if err != nil {
		return []driver.Finding{{Topic: "members", Level: driver.Warning, Detail: "cannot be listed: " + classed(ctx, err).Error(),
			Advice: "examine the cluster with a user who may"}}
	}
	members := driver.Finding{Topic: "members", Detail: fmt.Sprintf("%d members", len(list.Members))}
	switch n := len(list.Members); {
	case n == 1:
		members.Level, members.Detail = driver.Warning, "a single member: when it is down, nobody can lock"
		members.Advice = "run three"
	case n%2 == 0:
		members.Level = driver.Warning
		members.Advice = "an even number survives no more failures than one less: run an odd number"
	}
	fs := []driver.Finding{members}
	fewer := 0
	for _, e := range d.cli.Endpoints() {
		st, err := d.status(ctx, e)
		if err != nil {
			fewer++
			fs = append(fs, driver.Finding{Topic: "member", Level: driver.Warning, Detail: e + " does not answer", Advice: "see what is wrong with it"})
			continue
		}
		if strings.HasPrefix(st.Version, "3.4.") {
			fs = append(fs, driver.Finding{Topic: "version", Level: driver.Warning, Detail: e + " is " + st.Version +
				": an old leader whose disk stalls may end leases that were renewed elsewhere",
				Advice: "move to 3.5.6 or later; until then guard resources by tokens"})
		}
		for _, alarm := range st.Errors {
			fs = append(fs, driver.Finding{Topic: "alarm", Level: driver.Problem, Detail: e + ": " + alarm,
				Advice: "see etcdctl alarm list"})
		}
		if q := st.DbSizeQuota; q > 0 && st.DbSize > q/10*8 {
			fs = append(fs, driver.Finding{Topic: "space", Level: driver.Warning,
				Detail: fmt.Sprintf("%s uses %d of %d MiB", e, st.DbSize>>20, q>>20), Advice: "compact and defragment it"})
		}
	}
	if len(d.cli.Endpoints()) < len(list.Members) {
		fs = append(fs, driver.Finding{Topic: "endpoints", Level: driver.Warning,
			Detail: fmt.Sprintf("the client knows %d of %d members", len(d.cli.Endpoints()), len(list.Members)),
			Advice: "name all of them: the client goes past one that hangs only to one it knows"})
	}
	return fs
}

func (c *cluster) status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return c.cli.Status(ctx, endpoint)
}

// checkHistory reports whether the store is ever compacted. A lock and its
// release leave some hundred bytes until the next compaction, and a full store
// grants no lock.
func (d *Driver) checkHistory(ctx context.Context, revision int64) driver.Finding {
	const long = 100_000
	f := driver.Finding{Topic: "compaction", Detail: fmt.Sprintf("at revision %d", revision)}
	if revision <= long {
		return f
	}
	r := limit(keysOnly(all(d.keys.prefix+"%", d.keys.prefix+"&")), 1)
	r.Revision = revision - long
	if _, err := d.read(ctx, r); err == nil {
		f.Level = driver.Warning
		f.Detail += fmt.Sprintf(", the last %d are all kept", long)
		f.Advice = "set --auto-compaction-mode=periodic --auto-compaction-retention=1h, or the quota fills up"
	}
	return f
}
