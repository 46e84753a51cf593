package etcdlock

import (
	"context"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

var _ driver.Marker = (*Driver)(nil)

// done returns the key of the mark of a name. It has no lease.
func (l layout) done(name string) string { return l.prefix + "%d/" + plain.Encode(name) }

// encodeMark returns the value of a mark's key: the version of the layout and the
// token, each on a line of its own, and the mark's value.
func encodeMark(m driver.Mark) string {
	return version + strconv.FormatUint(m.Token, 10) + "\n" + string(m.Value)
}

func decodeMark(kv *mvccpb.KeyValue) (m driver.Mark, err error) {
	rest, ours := strings.CutPrefix(string(kv.Value), version)
	token, value, whole := strings.Cut(rest, "\n")
	if m.Token, err = strconv.ParseUint(token, 10, 64); !ours || !whole || err != nil {
		return m, driver.Errorf(driver.Refused, "key %q has a value that is no mark of Holdfast's", kv.Key)
	}
	m.Value = []byte(value)
	return m, nil
}

// Mark implements [driver.Marker].
func (d *Driver) Mark(ctx context.Context, name string) (driver.Mark, error) {
	m, _, err := d.readMark(ctx, name)
	return m, err
}

// readMark reads a mark, and the revision of its last change; 0 for none.
func (d *Driver) readMark(ctx context.Context, name string) (m driver.Mark, rev int64, err error) {
	if err := d.life.checkOpen(ctx); err != nil {
		return m, 0, err
	}
	resp, err := d.read(ctx, get(d.keys.done(name)))
	if err != nil || len(resp.Kvs) == 0 {
		return m, 0, err
	}
	m, err = decodeMark(resp.Kvs[0])
	return m, resp.Kvs[0].ModRevision, err
}

// SetMark implements [driver.Marker]. The mark that was read is replaced only if
// nobody has changed it since.
func (d *Driver) SetMark(ctx context.Context, name string, m driver.Mark) error {
	if err := driver.CheckMark(m); err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	key := d.keys.done(name)
	for range maxTries {
		old, rev, err := d.readMark(ctx, name)
		switch {
		case err != nil:
			return err
		case m.Token < old.Token:
			return driver.ErrStaleMark
		}
		unchanged := &pb.Compare{Key: []byte(key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: rev}}
		resp, err := d.txn(ctx, []*pb.Compare{unchanged}, []*pb.RequestOp{opPut(key, encodeMark(m), 0)}, nil)
		if err != nil {
			return err
		}
		if resp.Succeeded {
			return nil
		}
	}
	return driver.Errorf(driver.NotDone, "gave up after %d attempts: the mark kept changing", maxTries)
}
