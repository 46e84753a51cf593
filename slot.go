package holdfast

import "time"

// Slot returns the start of the slot that t is in, in UTC, as Time.Truncate
// does: slots of an hour begin at full hours, those of 24 h at midnight UTC, and
// those of a week on Mondays. The last twentieth of a slot, at most 10 s, counts
// for the next slot, because timers may be early. For an every of 0 or less, Slot
// returns t itself.
func Slot(t time.Time, every time.Duration) time.Time {
	if every <= 0 {
		return t.UTC().Round(0)
	}
	return t.Add(min(every/20, maxEarly)).UTC().Truncate(every)
}

// maxEarly is the longest time before a slot that counts for it.
const maxEarly = 10 * time.Second
