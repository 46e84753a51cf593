package etcdlock

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzEntry checks that each key of a queue, whatever it is, becomes one place
// or is refused, and that the units of the holders fit the limit.
func FuzzEntry(f *testing.F) {
	for _, key := range []string{"l/7b", "l/7b-a:1", "l/rw-1-7b-a:1", "l/rw-40000000-7b-a:1", "l/s3-2-7b-a:1", "l/s3-4-7b-a", "l/s1-1-7b-a", "l/sffffffffffffffff-1-7b", "l/", "k/7b", "l/-7b", "l/07b", "l/rw-0-7b-x"} {
		f.Add(key, "l/s3-1-7b-b", "hf1\na:1\n1000\no\nmeta\nmore", int64(0x7b))
		f.Add(key, "l/rw-1-7b-b", "hf1\na:1\n-1\n\n", int64(0))
	}
	f.Fuzz(func(t *testing.T, key, other, value string, lease int64) {
		kvs := []*mvccpb.KeyValue{
			{Key: []byte(key), Value: []byte(value), Lease: lease, CreateRevision: 1},
			{Key: []byte(other), Lease: lease, CreateRevision: 2},
		}
		for _, keysOnly := range []bool{false, true} {
			es, err := parseAll("l/", kvs, keysOnly)
			if err != nil {
				if driver.ClassOf(err) != driver.Refused {
					t.Errorf("%v", err)
				}
				continue
			}
			for _, e := range es {
				if e.units < 1 || e.units > e.limit || e.lease <= 0 || !strings.HasPrefix(e.key, "l/") || e.ours && e.ttl <= 0 && e.ttl < 0 {
					t.Errorf("%+v", e)
				}
			}
			n := holding(es)
			if n < 1 || n > len(es) || n == 2 && (es[0].limit != es[1].limit || es[0].units > es[0].limit-es[1].units) {
				t.Errorf("%d of %+v hold", n, es)
			}
		}
	})
}

// FuzzMessage checks that the text of a wake key is either refused or
// understood, and that a message stays the same when it is encoded and decoded
// again.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"+5  l/7b", "-0 . l/7b", "+5 7b:6,7c:8! l/7b", "+ x", "+5 %zz:1 k", "", "+5 :, k", "-9223372036854775808 a:-1! "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := decodeMessage(s)
		if err != nil {
			return
		}
		again, err := decodeMessage(m.encode())
		if err != nil || again.gone != m.gone || again.key != m.key || again.rev != m.rev || len(again.next) != len(m.next) {
			t.Fatalf("%q is %+v, and then %+v, %v", s, m, again, err)
		}
		for i := range m.next {
			if m.next[i] != again.next[i] {
				t.Errorf("%q is %+v, and then %+v", s, m, again)
			}
		}
	})
}

// FuzzParseURL checks that no error about a URL contains its password.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"@h", "@h:1,i:2?prefix=a/", "@h?prefix=%zz", "/x@h", "%@h", "@[::1]:2379", "@h?dial_timeout=x", "@h?ca=nowhere", "@,h"} {
		f.Add("u", s)
	}
	f.Fuzz(func(t *testing.T, user, rest string) {
		const hush = "hunter2Qx"
		if strings.ContainsAny(user, "?/@#") || strings.Contains(rest, hush) || strings.Contains(user, hush) || !strings.Contains(rest, "@") || strings.Contains(rest, "=/") {
			return
		}
		if _, err := parseURL("etcds://" + user + ":" + hush + rest); err != nil && strings.Contains(err.Error(), hush) {
			t.Errorf("%v", err)
		}
	})
}
