package natslock_test

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/once"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/natslock"
)

var (
	onceAll   = flag.Bool("once.all", false, "run all 1,000 slots of TestSlotsOnNATS, in 25 minutes with leases of 30 s")
	onceSeed  = flag.Uint64("once.seed", 1, "the seed of its world")
	onceHosts = flag.Int("once.hosts", 50, "how many hosts it has, if all slots are run")
	onceTTL   = flag.Duration("once.ttl", 6*time.Second, "their leases: a longer one lets a busy server keep up with the renewals of hosts that wait")
)

// TestSlotsOnNATS checks, with jobs that many hosts start by Once, that each slot is
// finished once, or again only where a fault fell between the return of the function
// and the answer to its record. It is TestSlotsOnAStore of internal/safety/once, in a
// small world unless -once.all is given.
func TestSlotsOnNATS(t *testing.T) {
	s := servers.StartNATS(t, "")
	world := once.InRealTime(*onceSeed, *onceHosts)
	world.TTL = *onceTTL
	if !*onceAll {
		world.Names, world.Hosts, world.Slots, world.Skew = world.Names[:4], 10, 5, time.Minute
		world.Faults, world.Down = time.Second, 3*time.Second
	}
	world.Open = func() (driver.Driver, error) { return natslock.OpenURL(t.Context(), s.URL()) }
	rep, err := world.Run()
	t.Log(rep)
	if err != nil {
		t.Error(err)
	}
	if rep.Kills == 0 || rep.Pauses == 0 || rep.Runs < rep.Slots {
		t.Error("the world shows too little")
	}
}
