package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Chosen makes the choice of cases on a driver that has every trait.
func Chosen(t T, h Harness) []Case {
	return chosen(t, &h, driver.Traits{Shared: true, Owner: true, Fair: true, Push: true, Fencing: true, Marks: true})
}

// A Hold is a grant as the hammers write it down, in milliseconds.
type Hold struct {
	ID              string
	Units           int64
	Token           uint64
	Asked, From, To int
}

// CheckHistory checks a history.
func CheckHistory(t T, limit int64, holds []Hold) {
	var h history
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, x := range holds {
		h.add(hold{x.ID, x.Units, x.Token, at(x.Asked), at(x.From), at(x.To)})
	}
	w := &world{clients{stage: &stage{T: t, traits: driver.Traits{Fencing: true}}}}
	h.check(w, limit)
}
