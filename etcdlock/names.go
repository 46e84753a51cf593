package etcdlock

import (
	"context"
	"iter"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// namesPage is the number of keys that one request lists. Their values stay at
// the server: a store may contain any data beside the queues, of any size.
const namesPage = 1000

// Names implements [driver.Driver]. A key that looks like a lock's belongs to a
// queue if it has the lease that it names.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.life.checkOpen(ctx); err != nil {
			yield("", err)
			return
		}
		// An encoded prefix is a prefix of the encoded names.
		start := d.keys.prefix + plain.Encode(prefix)
		to := "\x00" // the end of all keys
		if start != "" {
			to = after(start)
		} else {
			start = "\x00"
		}
		for {
			resp, err := d.read(ctx, limit(keysOnly(all(start, to)), namesPage))
			if err != nil {
				yield("", err)
				return
			}
			if len(resp.Kvs) == 0 {
				return
			}
			start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
			names, err := d.queuesAmong(ctx, resp.Kvs)
			if err != nil {
				yield("", err)
				return
			}
			for _, name := range names {
				// The keys of a queue are side by side; those of the last name may
				// go on.
				if behind := d.keys.prefix + plain.Encode(name) + "0"; behind > start && strings.HasPrefix(start, d.keys.queue(name)) {
					start = behind
				}
				if !yield(name, nil) {
					return
				}
			}
			if !resp.More || start >= to && to != "\x00" {
				return
			}
		}
	}
}

// candidate is a queue with the keys that look like its places.
type candidate struct {
	name string
	keys []entry
}

// queuesAmong returns the names of the queues that contain keys of kvs, in
// order.
func (c *cluster) queuesAmong(ctx context.Context, kvs []*mvccpb.KeyValue) ([]string, error) {
	var all []*candidate
	for _, kv := range kvs {
		name, e, ok := c.keys.nameOf(string(kv.Key), kv)
		if !ok {
			continue
		}
		if k := len(all) - 1; k >= 0 && all[k].name == name {
			all[k].keys = append(all[k].keys, e)
		} else {
			all = append(all, &candidate{name, []entry{e}})
		}
	}
	queues := make(map[*candidate]bool)
	for open := all; len(open) > 0; {
		var next []*candidate
		for len(open) > 0 {
			n := min(len(open), c.txnLimit.ops())
			ops := make([]*pb.RequestOp, n)
			for i, q := range open[:n] {
				ops[i] = opTxn([]*pb.Compare{leaseIs(q.keys[0].key, q.keys[0].lease)}, nil, nil)
			}
			resp, err := c.txn(ctx, nil, ops, nil)
			if c.txnLimit.refused(err, n) {
				continue
			}
			if err != nil {
				return nil, readOnly(err)
			}
			for i, q := range open[:n] {
				if queues[q] = resp.Responses[i].GetResponseTxn().GetSucceeded(); queues[q] {
					continue
				}
				if q.keys = q.keys[1:]; len(q.keys) > 0 {
					next = append(next, q)
				}
			}
			open = open[n:]
		}
		open = next
	}
	var names []string
	for _, q := range all {
		if queues[q] {
			names = append(names, q.name)
		}
	}
	return names, nil
}

// nameOf returns the name of the queue in which a key, read without its value,
// looks like a place.
func (l layout) nameOf(key string, kv *mvccpb.KeyValue) (string, entry, bool) {
	enc, _, ok := strings.Cut(key[len(l.prefix):], "/")
	if !ok {
		return "", entry{}, false
	}
	name, err := plain.Decode(enc)
	if err != nil {
		return "", entry{}, false
	}
	e, err := parse(l.queue(name), kv, true)
	return name, e, err == nil
}
