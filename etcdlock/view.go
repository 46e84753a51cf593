package etcdlock

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// lineView is a line as the store has it: places in order, and of named
// owners' places the tickets.
type lineView struct {
	places  []entry
	members map[string][]*mvccpb.KeyValue // by owner, oldest first
}

func (d *Driver) viewLine(ctx context.Context, name string) (lineView, error) {
	line, members := d.keys.line(name), d.keys.members(name, "")
	byAge := all(members, after(members))
	byAge.SortTarget, byAge.SortOrder = pb.RangeRequest_CREATE, pb.RangeRequest_ASCEND
	resp, err := d.txn(ctx, nil, []*pb.RequestOp{opGet(inOrder(line)), opGet(byAge)}, nil)
	if err != nil {
		return lineView{}, err
	}
	v := lineView{members: make(map[string][]*mvccpb.KeyValue)}
	if v.places, err = parseAll(line, kvs(resp, 0), false); err != nil {
		return v, err
	}
	for _, kv := range kvs(resp, 1) {
		if r, ours := decode(kv.Value); ours {
			v.members[r.owner] = append(v.members[r.owner], kv)
		}
	}
	return v, nil
}

// Inspect implements [driver.Driver]. The place of a foreign client has its
// lease, in hex, as its id. What time is left is asked for lease by lease,
// beside the one request that reads the line.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Line, error) {
	line := driver.Line{Name: name}
	if err := d.before(ctx); err != nil {
		return line, err
	}
	v, err := d.viewLine(ctx, name)
	if err != nil || len(v.places) == 0 {
		return line, err
	}
	line.Limit = v.places[0].limit
	held := holding(v.places)
	var leases []int64
	for i, e := range v.places {
		entry := driver.Entry{ID: e.id, Owner: e.owner, State: driver.Waiting, Units: e.units, Meta: e.meta}
		if i < held {
			entry.State, entry.Token = driver.Held, uint64(e.rev)
			line.Token = max(line.Token, entry.Token)
		}
		if e.ours && e.id == "" { // a named owner's
			for _, kv := range v.members[e.owner] {
				r, _ := decode(kv.Value)
				entry.ID, entry.Meta = r.id, r.meta
				line.Tickets = append(line.Tickets, entry)
				leases = append(leases, kv.Lease)
			}
			continue
		}
		if !e.ours {
			entry.ID = hex(e.lease)
		}
		line.Tickets = append(line.Tickets, entry)
		leases = append(leases, e.lease)
	}
	left, err := d.left(ctx, leases)
	if err != nil {
		return driver.Line{Name: name}, err
	}
	for i := range line.Tickets {
		line.Tickets[i].Left = left[leases[i]]
	}
	return line, nil
}

// left asks how long leases last.
func (d *Driver) left(ctx context.Context, leases []int64) (map[int64]time.Duration, error) {
	left := make(map[int64]time.Duration)
	ids := slices.Compact(slices.Sorted(slices.Values(leases)))
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	room := make(chan struct{}, 8)
	for _, id := range ids {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			resp, err := d.leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !noLease(classed(ctx, err)) {
				first = classed(ctx, err)
			} else if err == nil {
				left[id] = time.Duration(resp.TTL) * time.Second
			}
		})
	}
	wg.Wait()
	return left, first
}

// Names implements [driver.Driver].
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.before(ctx); err != nil {
			yield("", err)
			return
		}
		// An encoded prefix is a prefix of the encoded names.
		from := d.keys.prefix + plain.Encode(prefix)
		to := "\x00" // the end of all keys
		if from != "" {
			to = after(from)
		}
		start := from
		if start == "" {
			start = "\x00"
		}
		for {
			resp, err := d.read(ctx, limit(all(start, to), 200))
			if err != nil {
				yield("", err)
				return
			}
			for _, kv := range resp.Kvs {
				key := string(kv.Key)
				if key < start {
					continue // of a line that was yielded
				}
				start = key + "\x00"
				name, ok := d.nameOf(key, kv)
				if !ok {
					continue
				}
				start = d.keys.prefix + plain.Encode(name) + "0" // behind its slash
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

// nameOf returns the name of the line that a key is in; keys that are no
// lock's have none.
func (d *Driver) nameOf(key string, kv *mvccpb.KeyValue) (string, bool) {
	enc, _, ok := strings.Cut(key[len(d.keys.prefix):], "/")
	if !ok {
		return "", false
	}
	name, err := plain.Decode(enc)
	if err != nil {
		return "", false
	}
	_, err = parse(d.keys.line(name), kv, false)
	return name, err == nil
}

// Break implements [driver.Driver]. In one transaction the place goes, a
// tombstone keeps its ticket from coming back, and its client is told; a
// second tells those who hold by it. A foreign ticket's id is its lease in
// hex, as Inspect shows it.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	for range maxTries {
		v, err := d.viewLine(ctx, name)
		if err != nil {
			return err
		}
		done, err := d.breakSeen(ctx, name, ticketID, v)
		if done || err != nil {
			return err
		}
	}
	return driver.Errorf(driver.NotDone, "the line changed %d times while it was read", maxTries)
}

// breakSeen breaks a ticket of a line that was read; false when the line has
// changed.
func (d *Driver) breakSeen(ctx context.Context, name, id string, v lineView) (bool, error) {
	line := d.keys.line(name)
	for _, e := range v.places {
		if e.ours && e.id == "" {
			for _, kv := range v.members[e.owner] {
				if r, _ := decode(kv.Value); r.id == id {
					return d.breakMember(ctx, name, e.owner, id, kv)
				}
			}
			continue
		}
		if e.ours && e.id != id || !e.ours && hex(e.lease) != id {
			continue
		}
		ops := []*pb.RequestOp{opGet(inOrder(line)), opDelete(e.key)}
		if e.ours {
			more, err := d.verdict(ctx, id, e.key, e.rev, e.lease)
			if err != nil {
				return false, err
			}
			ops = append(ops, more...)
		}
		resp, err := d.txn(ctx, []*pb.Compare{createdIs(e.key, e.rev)}, ops, nil)
		if noLease(err) {
			return false, nil
		}
		if err != nil || !resp.Succeeded {
			return false, err
		}
		if es, err := parseAll(line, kvs(resp, 0), false); err == nil {
			_, woken := departure(es, e.key)
			d.wake(ctx, line, woken)
		}
		return true, nil
	}
	return false, &driver.Error{Class: driver.Refused, Err: driver.ErrNoTicket}
}

func (d *Driver) breakMember(ctx context.Context, name, owner, id string, kv *mvccpb.KeyValue) (bool, error) {
	m, _, err := d.viewOwner(ctx, name, owner, string(kv.Key), "")
	if err != nil || m == nil || m.kv.CreateRevision != kv.CreateRevision {
		return false, err
	}
	more, err := d.verdict(ctx, id, string(kv.Key), kv.CreateRevision, kv.Lease)
	if err != nil {
		return false, err
	}
	err = d.removeMember(ctx, name, owner, m, more)
	if noLease(err) {
		return false, nil
	}
	return err == nil, err
}

// verdict is what goes with the end of a broken ticket: a tombstone, and the
// word to its client.
func (d *Driver) verdict(ctx context.Context, id, key string, rev, lease int64) ([]*pb.RequestOp, error) {
	grave, err := d.grave(ctx)
	if full(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unsent(err)
	}
	return []*pb.RequestOp{
		opPut(d.keys.tomb(id), "", grave),
		opPut(d.keys.wake(hex(lease)), message{gone: true, key: key, rev: rev}.encode(), lease),
	}, nil
}
