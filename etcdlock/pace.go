package etcdlock

import (
	"sync/atomic"
	"time"
)

// pace is the time that the servers have lately taken to answer a request.
// Actions that respond to a suspected failure wait for a multiple of it: a slow
// server must not get more work than a quick one.
type pace struct{ ns atomic.Int64 }

// took records an answer. Slower answers count at once, quicker ones by and by.
func (p *pace) took(d time.Duration) {
	old := p.ns.Load()
	if next := int64(d); next > old {
		p.ns.Store((old + next) / 2)
	} else {
		p.ns.Store(old - (old-next)/8)
	}
}

// silent records a request that had no answer after d.
func (p *pace) silent(d time.Duration) {
	if int64(d) > p.ns.Load() {
		p.took(d)
	}
}

// times returns n times the time that an answer takes, within bounds.
func (p *pace) times(n int64, least, most time.Duration) time.Duration {
	return min(max(time.Duration(n*p.ns.Load()), least), most)
}
