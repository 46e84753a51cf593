package natslock_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/natslock"
)

// queueKey returns the key of a queue, as the page of the store describes it.
func queueKey(name string) string {
	return "queue." + strings.NewReplacer("%", "=", "~", "/").Replace(plain.Encode(name))
}

// ticket returns a ticket of a mutex.
func ticket(id, name string) *driver.Ticket {
	return &driver.Ticket{ID: "6ba7b810-9dad-11d1-80b4-00c04fd430c8:" + id, Name: name, Units: 1, Limit: 1, TTL: time.Minute, Meta: "m"}
}

// TestF131_ForeignValueRefusesJoin checks that a value of another program in a
// queue's place is an error, and stays.
//
// Covers: F131, F66.
func TestF131_ForeignValueRefusesJoin(t *testing.T) {
	s := servers.SharedNATS(t)
	own := "b" + rand.Text() // repeated runs share the server
	d := open(t, s, natslock.Options{Bucket: own})
	defer d.Close()
	kv, ctx := bucket(t, s, own)
	for name, c := range map[string]struct{ value, says string }{
		"text":    {"somebody's text", "not a lock's record"},
		"empty":   {"", "not a lock's record"},
		"object":  {`{"name": "object"}`, "not a lock's record"},
		"array":   {`[1]`, "not a lock's record"},
		"later":   {`{"holdfast": 2, "name": "later"}`, "layout is 2, this version knows 1; upgrade this program first"},
		"other":   {`{"holdfast": 1, "name": "somewhere else"}`, "another name"},
		"damaged": {`{"holdfast": 1, "name": "damaged", "places": [null]}`, "damaged"},
		"nobody":  {`{"holdfast": 1, "name": "nobody", "places": [{"units": 1}]}`, "damaged"},
		"a.b *>":  {"text under a name with wildcards", "not a lock's record"},
	} {
		if _, err := kv.Put(ctx, queueKey(name), []byte(c.value)); err != nil {
			t.Fatal(err)
		}
		for _, wait := range []bool{false, true} {
			_, err := d.Join(ctx, ticket("1", name), wait)
			if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, wait=%v: %v; want an error of class Refused about %q", name, wait, err, c.says)
			}
		}
		if e, err := kv.Get(ctx, queueKey(name)); err != nil || string(e.Value()) != c.value {
			t.Errorf("%s: the value is gone: %v", name, err)
		}
		if err := kv.Purge(ctx, queueKey(name)); err != nil {
			t.Fatal(err)
		}
		if st, err := d.Join(ctx, ticket("1", name), true); err != nil || st.State != driver.Held {
			t.Errorf("%s, without the value: %v, %v", name, st.State, err)
		}
	}
	for name, err := range d.Names(ctx, "") {
		if err != nil {
			t.Errorf("Names after %q: %v", name, err)
		}
	}
}

// TestF66_RecordLayoutIsFixed checks the bytes that the driver writes, except for
// times, tokens and addresses.
func TestF66_RecordLayoutIsFixed(t *testing.T) {
	s := servers.SharedNATS(t)
	own := "b" + rand.Text()
	d := open(t, s, natslock.Options{Bucket: own})
	defer d.Close()
	kv, ctx := bucket(t, s, own)
	const name = "orders/42 ä"
	leave := func(x *driver.Ticket, pending bool) {
		t.Helper()
		if _, err := d.Leave(context.Background(), []driver.Ref{{Ticket: x, JoinPending: pending}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Join(ctx, ticket("2", name), true); err != nil {
		t.Fatal(err)
	}
	const key = "queue.orders=2F42=20=C3=A4"
	e, err := kv.Get(ctx, key)
	if err != nil {
		t.Fatalf("key %s: %v", key, err)
	}
	for _, part := range []string{
		`{"holdfast":1,"name":"orders/42 ä","limit":1,"token":`,
		`,"places":[{"units":1,"token":`,
		`,"tickets":[{"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8:2","meta":"m","ttl":60000000000,"expiry":`,
		`,"push":"`,
	} {
		if !strings.Contains(string(e.Value()), part) {
			t.Errorf("the record has no %s: %s", part, e.Value())
		}
	}
	leave(ticket("2", name), true)
	if e, err = kv.Get(ctx, key); err != nil || !strings.Contains(string(e.Value()), `"gone":{"6ba7b810-9dad-11d1-80b4-00c04fd430c8:2":`) {
		t.Errorf("after Leave with JoinPending: %s, %v", e.Value(), err)
	}
	if err := d.SetMark(ctx, name, driver.Mark{Token: 7, Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if e, err = kv.Get(ctx, "mark.orders=2F42=20=C3=A4"); err != nil || string(e.Value()) != `{"holdfast":1,"name":"orders/42 ä","token":7,"value":"dg=="}` {
		t.Errorf("mark: %s, %v", e.Value(), err)
	}
}
