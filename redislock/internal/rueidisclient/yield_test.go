package rueidisclient

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// orderConn notes whether a goroutine had run when it is written to.
type orderConn struct {
	net.Conn
	ran       atomic.Bool
	ranBefore bool
}

func (c *orderConn) Write(b []byte) (int, error) { c.ranBefore = c.ran.Load(); return len(b), nil }

func (*orderConn) SetDeadline(time.Time) error { return nil }

func (*orderConn) SetReadDeadline(time.Time) error { return nil }

func (*orderConn) SetWriteDeadline(time.Time) error { return nil }

// TestWriterOfACrowdLetsOthersRun checks that the goroutine which writes the requests
// of a crowd lets the others run first, whose requests then go with the next write,
// and that with few requests, or a single caller, it does not.
func TestWriterOfACrowdLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, c := range []struct {
		underWay int32
		limit    time.Time
		want     bool
	}{
		{underWay: 1},
		{underWay: yieldFrom},
		{underWay: yieldFrom + 1, want: true},
		{underWay: 200, want: true},
		{underWay: 200, limit: time.Now().Add(time.Hour)},
	} {
		right := 0
		const tries = 100
		for range tries {
			o := new(orderConn)
			m := &boundConn{Conn: o, loneCall: new(loneCall), limit: c.limit}
			m.loneCall.underWay.Store(c.underWay)
			done := make(chan struct{})
			go func() { o.ran.Store(true); close(done) }()
			if _, err := m.Write([]byte("request")); err != nil {
				t.Fatal(err)
			}
			if o.ranBefore == c.want {
				right++
			}
			<-done
		}
		if right < tries*9/10 { // the scheduler may let a goroutine run at any time
			t.Errorf("with %d requests under way, limit %v: whether others run first was not %v in %d of %d writes",
				c.underWay, !c.limit.IsZero(), c.want, tries-right, tries)
		}
	}
}
