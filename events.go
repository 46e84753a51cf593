package holdfast

// observer returns the Observer, never nil.
func (c *Client) observer() *Observer {
	if o := c.settings.observer; o != nil {
		return o
	}
	return &noObserver
}

var noObserver Observer

// tellLost reports losses on a goroutine of its own: a callback may call
// Unlock, Lock or Close, may block, and may panic.
func (c *Client) tellLost(lost []*LostError) {
	o := c.observer()
	if o.Lost == nil || len(lost) == 0 {
		return
	}
	go func() {
		for _, err := range lost {
			guard(func() { o.Lost(err) })
		}
	}()
}

func (c *Client) tellTrouble(err error) {
	o := c.observer()
	if o.Trouble == nil {
		return
	}
	go guard(func() { o.Trouble(err) })
}

func guard(f func()) {
	defer func() { _ = recover() }()
	f()
}
