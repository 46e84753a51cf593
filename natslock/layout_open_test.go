package natslock_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/natslock"
)

// TestOpenRefusesALaterLayout checks that a bucket that a later version uses in another
// way is refused when it is opened, and left unchanged, that a layout that this version
// knows is accepted, and that the key is no queue.
func TestOpenRefusesALaterLayout(t *testing.T) {
	s := servers.SharedNATS(t)
	own := natslock.Options{Bucket: "b" + rand.Text()} // repeated runs share the server
	d := open(t, s, own)
	must(t, d.Close())
	kv, ctx := bucket(t, s, own.Bucket)
	revision, err := kv.Put(ctx, "layout", []byte("2"))
	must(t, err)
	d, err = natslock.Open(ctx, []string{s.URL()}, own)
	if err == nil {
		_ = d.Close()
	}
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "key layout is 2, this version knows 1; upgrade this program first") {
		t.Errorf("layout 2: %v", err)
	}
	if e, err := kv.Get(ctx, "layout"); err != nil || string(e.Value()) != "2" || e.Revision() != revision {
		t.Errorf("the key has changed: %v, %v", e, err)
	}
	_, err = kv.Put(ctx, "layout", []byte("1"))
	must(t, err)
	d = open(t, s, own)
	defer d.Close()
	for name, err := range d.Names(ctx, "") {
		t.Errorf("Names lists %q, %v", name, err)
	}
}
