package sqlline

import "sync/atomic"

// crowd guesses, by the first byte of its key, in which lines somebody waits,
// and in which somebody did lately: for as many requests as rememberCrowd.
type crowd [256]atomic.Int32

// rememberCrowd is for how many requests without a crowd one is remembered.
const rememberCrowd = 32

// saw takes in whether somebody waits in a line, or wants what is held.
func (c *crowd) saw(key []byte, crowd bool) {
	n := &c[key[0]]
	if crowd {
		n.Store(rememberCrowd)
	} else if was := n.Load(); was > 0 {
		n.CompareAndSwap(was, was-1)
	}
}

// now says whether the last request saw a crowd.
func (c *crowd) now(key []byte) bool { return c[key[0]].Load() == rememberCrowd }

// lately says whether one of the last requests did.
func (c *crowd) lately(key []byte) bool { return c[key[0]].Load() > 0 }
