package lockserver

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/memlock"
)

// TestClaimEndsWhileItIsRenewed renews a hold at a server whose store answers slowly: the
// first renewal is answered by the store, and later than the client; the second is under way
// when the claim ends of which this server has told. Another server renews the hold meanwhile.
func TestClaimEndsWhileItIsRenewed(t *testing.T) {
	bubble(t, func(w *world) {
		d := &tardy{Driver: memlock.New(w.store)}
		s, other := w.serverWith(w.clientOf(d), Options{}), w.server()
		first := w.acquire(s, 1, "a")
		w.want("acquire", first, 200, "state", "held")
		w.want("resume", w.acquire(other, 1, "a", "resume", first.text("token")), 200, "state", "held")
		time.Sleep(3 * time.Second)
		d.renew.Store(int64(1300 * time.Millisecond))
		w.want("renew here", w.renew(s, 1), 200, "code", "store_unknown") // after 1.125 s
		w.want("renew at the other one", w.renew(other, 1), 200, "state", "held")
		time.Sleep(4500 * time.Millisecond)
		w.want("renew at the other one", w.renew(other, 1), 200, "state", "held")
		late := w.renew(s, 1)
		if late.text("code") == "lost" {
			t.Errorf("the other server has just renewed the hold, and this one answers: %s", late.raw)
		}
		w.want("renew at the other one", w.renew(other, 1), 200, "state", "held")
		d.renew.Store(0)
		w.release(other, 1, "a", "moved", "true")
		time.Sleep(time.Minute)
	})
}
