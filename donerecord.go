package holdfast

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// doneRecord is the value of a mark: the slots of a job that are done.
type doneRecord struct {
	slots []int64 // the greatest, at most maxSlots, in Unix nanoseconds, from the greatest down
	last  []Done  // recorded last, the latest first; as many as fit
}

const (
	maxSlots          = 64
	doneRecordVersion = 1
)

// errNewerRecord is the error of a record of a later layout.
var errNewerRecord = errors.New("the record of slots was written by a newer version: upgrade this program first")

// storedRecord is the stored form of a doneRecord, in JSON.
type storedRecord struct {
	Version int          `json:"v"`
	Slots   string       `json:"s"`
	Last    []storedDone `json:"l"`
}

// storedDone is the stored form of a Done.
type storedDone struct {
	Slot  string          `json:"s"`
	Token uint64          `json:"t"`
	At    int64           `json:"a"` // Unix milliseconds
	By    json.RawMessage `json:"b,omitempty"`
}

// parseDoneRecord reads a mark's value; that of no mark is the empty record.
func parseDoneRecord(value []byte) (doneRecord, error) {
	var r doneRecord
	if len(value) == 0 {
		return r, nil
	}
	var st storedRecord
	err := json.Unmarshal(value, &st)
	switch {
	case err == nil && st.Version > doneRecordVersion:
		return r, driver.Wrap(driver.Refused, errNewerRecord)
	case err == nil && st.Version == doneRecordVersion:
		r.slots, err = parseSlots(st.Slots)
	case err == nil:
		err = fmt.Errorf("version %d", st.Version)
	}
	if err != nil {
		return doneRecord{}, driver.Errorf(driver.Refused, "the record of slots is damaged: %w", err)
	}
	for _, d := range st.Last {
		at, err := strconv.ParseInt(d.Slot, 36, 64)
		if err != nil {
			return doneRecord{}, driver.Errorf(driver.Refused, "the record of slots is damaged: %w", err)
		}
		r.last = append(r.last, Done{Slot: slotTime(at), By: parseHolder(string(d.By)), At: time.UnixMilli(d.At), Token: d.Token})
	}
	return r, nil
}

// parseSlots reads the greatest slot and the distances to the next ones, in
// base 36; "d*n" is n times the distance d. A distance may be greater than an int64.
func parseSlots(s string) ([]int64, error) {
	if s == "" {
		return nil, nil
	}
	first, rest, more := strings.Cut(s, ",")
	greatest, err := strconv.ParseInt(first, 36, 64)
	if err != nil {
		return nil, err
	}
	slots := []int64{greatest}
	for more {
		var field string
		field, rest, more = strings.Cut(rest, ",")
		d, count, repeated := strings.Cut(field, "*")
		n, err := strconv.ParseUint(d, 36, 64)
		times := 1
		if err == nil && repeated {
			times, err = strconv.Atoi(count)
		}
		switch {
		case err != nil:
			return nil, err
		case times < 1 || len(slots)+times > maxSlots:
			return nil, fmt.Errorf("slots %q", s)
		}
		for range times {
			prev := slots[len(slots)-1]
			slot := int64(uint64(prev) - n)
			if slot >= prev { // no distance, or one beyond the least slot
				return nil, fmt.Errorf("slots %q", s)
			}
			slots = append(slots, slot)
		}
	}
	return slots, nil
}

// formatSlots is the reverse of parseSlots.
func formatSlots(slots []int64) string {
	var b strings.Builder
	for i := 0; i < len(slots); {
		if i == 0 {
			b.WriteString(strconv.FormatInt(slots[0], 36))
			i++
			continue
		}
		d, n := distance(slots, i), 1
		for i+n < len(slots) && distance(slots, i+n) == d {
			n++
		}
		b.WriteString("," + strconv.FormatUint(d, 36))
		if n > 1 {
			b.WriteString("*" + strconv.Itoa(n))
		}
		i += n
	}
	return b.String()
}

// distance returns how much less slots[i] is than the one before it.
func distance(slots []int64, i int) uint64 { return uint64(slots[i-1]) - uint64(slots[i]) }

// format returns the value of a mark, with as many of the last Dones as fit.
func (r *doneRecord) format() ([]byte, error) {
	st := storedRecord{Version: doneRecordVersion, Slots: formatSlots(r.slots)}
	for _, d := range r.last {
		st.Last = append(st.Last, storeDone(d))
	}
	for {
		value, err := json.Marshal(st)
		switch n := len(st.Last); {
		case err != nil:
			return nil, err
		case len(value) <= driver.MaxMark:
			return value, nil
		case n > 1:
			st.Last = st.Last[:n-1]
		case n == 1 && r.last[0].By.Note != "":
			r.last[0].By.Note = "" // a long note, and slots far apart
			st.Last[0] = storeDone(r.last[0])
		case n == 1 && r.last[0].By.Via != "" && (r.last[0].By.Host != "" || r.last[0].By.PID != 0):
			r.last[0].By.Via = ""
			st.Last[0] = storeDone(r.last[0])
		default:
			r.last[0].By = Holder{}
			st.Last[0] = storeDone(r.last[0])
		}
	}
}

func storeDone(d Done) storedDone {
	return storedDone{
		Slot: strconv.FormatInt(d.Slot.UnixNano(), 36), Token: d.Token, At: d.At.UnixMilli(),
		By: formatHolder(d.By),
	}
}

// slotTime returns a slot as users see it.
func slotTime(slot int64) time.Time { return time.Unix(0, slot).UTC() }

// find reports whether the slot counts as done, and who did it where that is
// known.
func (r *doneRecord) find(slot int64) (done Done, ok bool) {
	for _, d := range r.last {
		if d.Slot.UnixNano() == slot {
			return d, true
		}
	}
	tooOld := len(r.slots) == maxSlots && slot < r.slots[maxSlots-1]
	return Done{Slot: slotTime(slot), TooOld: tooOld}, tooOld || slices.Contains(r.slots, slot)
}

// with returns the record with one more slot.
func (r *doneRecord) with(d Done) doneRecord {
	slot := d.Slot.UnixNano()
	next := doneRecord{last: []Done{d}, slots: slices.Clone(r.slots)}
	if i, there := slices.BinarySearchFunc(next.slots, slot, func(a, b int64) int {
		return cmp.Compare(b, a)
	}); !there {
		next.slots = slices.Insert(next.slots, i, slot)
	}
	next.slots = next.slots[:min(len(next.slots), maxSlots)]
	for _, old := range r.last {
		if at := old.Slot.UnixNano(); at != slot && slices.Contains(next.slots, at) {
			next.last = append(next.last, old)
		}
	}
	return next
}

// ahead describes the one who did the greatest slot, for the report of a slot
// that is too old.
func (r *doneRecord) ahead() string {
	d, _ := r.find(r.slots[0])
	if d.By == (Holder{}) && len(r.last) > 0 {
		d.By = r.last[0].By
	}
	text := "the greatest is " + slotTime(r.slots[0]).Format(time.RFC3339)
	if d.By != (Holder{}) {
		text += ", by " + d.By.String()
	}
	return text
}
