package once

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// InRealTime returns the world of the runs on real stores: 20 jobs at once, of up to
// 3 s, with 50 slots each, one every 3 s. Their names are new in each second, as a
// store keeps the marks of a run before. Open is up to the caller.
func InRealTime(seed uint64, hosts int) World {
	world := World{
		Seed: seed, Hosts: hosts, Slots: 50, Every: time.Minute, Skew: 10 * time.Minute, Speed: 20, TTL: 6 * time.Second,
		Job: func(rnd *rand.Rand) time.Duration {
			return time.Duration(float64(time.Millisecond) * math.Pow(3000, rnd.Float64()))
		},
		Faults: 4 * time.Second, Down: 15 * time.Second, Aimed: 3,
	}
	for i := range 20 {
		world.Names = append(world.Names, fmt.Sprintf("once-%d-%d/%d", time.Now().Unix(), seed, i))
	}
	return world
}
