package checker

import (
	"math"
	"slices"
	"time"
)

// disturbance is a time in which a process was stopped, cut off or otherwise
// disturbed.
type disturbance struct {
	kind     string
	from, to int64
}

// disturbances are those of each process.
type disturbances map[int][]disturbance

func (d disturbances) add(p int, kind string, from, to int64) {
	d[p] = append(d[p], disturbance{kind, from, to})
}

// end ends the last disturbance of a kind that has no end.
func (d disturbances) end(p int, kind string, at int64) {
	us := d[p]
	for i := len(us) - 1; i >= 0; i-- {
		if us[i].kind == kind && us[i].to == math.MaxInt64 {
			us[i].to = at
			return
		}
	}
}

// hadStoreError reports whether a call met trouble before it had a place: it
// may have waited for the store.
func (d disturbances) hadStoreError(op *Op, slack time.Duration) bool {
	return slices.ContainsFunc(d[op.P], func(u disturbance) bool {
		return u.kind == "trouble" && u.from >= op.Asked && u.from <= op.Waiting+int64(slack)
	})
}

// absentTime returns the part of a time in which a process did not run.
func (d disturbances) absentTime(p int, from, to int64) (sum int64) {
	for _, u := range d[p] {
		if u.kind == "stall" || u.kind == "pause" {
			sum += max(0, min(to, u.to)-max(from, u.from))
		}
	}
	return sum
}

// meet reports whether a call's process was disturbed between a TTL before
// it had its place and its grant.
func (d disturbances) meet(op *Op, rules *Rules) bool {
	from, to := op.Waiting-int64(rules.TTL), op.Granted
	for p, us := range d {
		for _, u := range us {
			theirs := p == Store || rules.Contagious && u.kind == "pause"
			if p != op.P && !theirs || u.kind == "stall" && u.to-u.from < int64(rules.TTL)/4 {
				continue
			}
			end := u.to
			if end < math.MaxInt64 {
				end += int64(rules.TTL)
			}
			if u.from < to && end > from {
				return true
			}
		}
	}
	return false
}
