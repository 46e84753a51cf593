package broken

// OpenElsewhere opens a client that sees the store in another way.
func OpenElsewhere(s *Store) *Driver {
	switch {
	case s.hasFlaw("elsewhere-apart"):
		apart := NewStore(None)
		apart.start, apart.clockStep = s.start, s.clockStep
		return New(apart)
	case s.hasFlaw("elsewhere-voids"):
		s.LoseData()
	}
	return New(s)
}
