package sqlqueue

import "sync/atomic"

// contention estimates which queues are contended: it remembers, by the first
// byte of a queue's key, whether one of the last contentionMemory requests met
// contention.
type contention [256]atomic.Int32

// contentionMemory is the number of requests without contention after which the
// last contention is forgotten.
const contentionMemory = 32

// record records whether a request met contention: a waiter in the queue, or a
// holder in its way.
func (c *contention) record(key []byte, contended bool) {
	n := &c[key[0]]
	if contended {
		n.Store(contentionMemory)
	} else if was := n.Load(); was > 0 {
		n.CompareAndSwap(was, was-1)
	}
}

// last reports whether the last request met contention.
func (c *contention) last(key []byte) bool { return c[key[0]].Load() == contentionMemory }

// recent reports whether one of the last requests did.
func (c *contention) recent(key []byte) bool { return c[key[0]].Load() > 0 }
