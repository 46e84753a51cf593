package broken

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Restart ends all subscriptions; the drivers take them up again and say so.
func (s *Store) Restart() {
	s.mu.Lock()
	clients := slices.Clone(s.clients)
	s.mu.Unlock()
	for _, d := range clients {
		if s.hasFlaw("silent-restart") {
			d.ignoresPushes.Store(true)
		} else {
			d.push("", driver.Status{})
		}
	}
}
