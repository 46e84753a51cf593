package sqlcases

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// OldConnections checks that, after a request that was not answered, idle connections are
// used again if their last use ended after that request had begun, and are closed
// otherwise. In use, a function gets the server's number of a connection of the driver's
// pool, which it keeps until it returns. A request that began at an instant is not
// answered in silence.
func OldConnections(t *testing.T, use func(func(id int64)) error, silence func(since sqlqueue.Instant)) {
	t.Helper()
	one := func(f func(id int64)) {
		if err := use(f); err != nil {
			t.Fatal(err)
		}
	}
	// two returns two connections that are used at the same time.
	two := func() (ids [2]int64) {
		one(func(id int64) {
			ids[0] = id
			one(func(id int64) { ids[1] = id })
		})
		return ids
	}
	before := two()
	between := sqlqueue.InstantOf(time.Now())
	var last int64 // the only one used since
	one(func(id int64) { last = id })
	silence(between)
	for _, now := range two() {
		if now != last && (now == before[0] || now == before[1]) {
			t.Errorf("connection %d, whose last use was before the silence, is used again; it was %v before, and %d since", now, before, last)
		}
	}
	silence(sqlqueue.InstantOf(time.Now()))
	for _, now := range two() {
		if now == last {
			t.Errorf("connection %d is used after a silence that began after its last use", now)
		}
	}
}
