package holdfast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// through stores a record and reads it back.
func through(t *testing.T, r doneRecord) doneRecord {
	t.Helper()
	value, err := r.format()
	if err != nil || len(value) > driver.MaxMark {
		t.Fatalf("%d bytes, %v", len(value), err)
	}
	back, err := parseDoneRecord(value)
	if err != nil {
		t.Fatalf("%s: %v", value, err)
	}
	return back
}

func doneAt(slot time.Time, note string) Done {
	return Done{
		Slot: slot.UTC(), At: time.UnixMilli(1_700_000_000_123), Token: 1<<60 + 1,
		By: Holder{Host: "web-17.example.org", PID: 4711, Since: time.UnixMilli(1_700_000_000_000), Note: note},
	}
}

// TestDoneRecordKeepsTheGreatestSlots checks that a record keeps the 64 greatest
// slots, in any order of recording, and that what is older than all of them counts
// as done.
func TestDoneRecordKeepsTheGreatestSlots(t *testing.T) {
	start := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var r doneRecord
		order := rnd.Perm(200)
		for n, i := range order {
			slot := start.Add(time.Duration(i) * time.Hour)
			r = through(t, r.with(doneAt(slot, "")))
			if !reflect.DeepEqual(r.last[0], doneAt(slot, "")) {
				t.Fatalf("the last is %+v, want %+v", r.last[0], doneAt(slot, ""))
			}
			if want := min(n+1, maxSlots); len(r.slots) != want {
				t.Fatalf("%d slots after %d, want %d", len(r.slots), n+1, want)
			}
		}
		for i := range 200 {
			done, ok := r.find(start.Add(time.Duration(i) * time.Hour).UnixNano())
			if !ok || done.TooOld != (i < 200-maxSlots) && done.By == (Holder{}) {
				t.Errorf("slot %d: done %v, too old %v", i, ok, done.TooOld)
			}
		}
		if done, ok := r.find(start.Add(200 * time.Hour).UnixNano()); ok || done.TooOld {
			t.Errorf("a slot that nobody did: done %v, too old %v", ok, done.TooOld)
		}
	}
}

// TestDoneRecordTellsOfThirty checks that a record of regular slots tells of at
// least thirty of the last by whom they were done.
func TestDoneRecordTellsOfThirty(t *testing.T) {
	var r doneRecord
	for i := range 100 {
		r = through(t, r.with(doneAt(time.Unix(1_800_000_000+int64(i)*3600, 0), "")))
	}
	if len(r.last) < 30 {
		t.Errorf("%d of 64 are known", len(r.last))
	}
	for i, d := range r.last {
		if want := doneAt(time.Unix(1_800_000_000+int64(99-i)*3600, 0), ""); !reflect.DeepEqual(d, want) {
			t.Errorf("%d is %+v, want %+v", i, d, want)
		}
	}
}

// TestDoneRecordFits checks that the record fits into a mark whatever the slots
// and the texts are, and that the last slot and its time are always in it.
func TestDoneRecordFits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, host := range []string{"h", strings.Repeat("h", 256), strings.Repeat("\x01", 256)} {
		for _, note := range []string{"", strings.Repeat("n", maxNote), strings.Repeat(`"`, maxNote), strings.Repeat("\u2028", maxNote/3)} {
			for _, via := range []string{"", "lockd", strings.Repeat("v", maxVia), strings.Repeat("<", maxVia)} {
				var r doneRecord
				for range 100 {
					d := doneAt(time.Unix(0, rnd.Int64N(1<<62)-1<<61), note)
					d.By.Host, d.By.Via = host, via
					r = through(t, r.with(d))
					if !r.last[0].Slot.Equal(d.Slot) || !r.last[0].At.Equal(d.At) || r.last[0].Token != d.Token {
						t.Fatalf("the last is %+v, want %+v", r.last[0], d)
					}
					if got := r.last[0].By; got.Host != host || got.PID != d.By.PID || got.Via != via && via[0] != '<' {
						t.Fatalf("the last was done by %+v, want %+v", got, d.By)
					}
				}
			}
		}
	}
}

// TestDoneRecordRefusesOthersValues checks that a value of a later version, or of
// another program, is an error of class Refused.
func TestDoneRecordRefusesOthersValues(t *testing.T) {
	for _, value := range []string{
		"x", "{}", `{"v":0}`, `{"v":2}`, `{"v":1,"s":"zz!"}`, `{"v":1,"s":"a*2"}`, `{"v":1,"s":"a,0"}`, `{"v":1,"s":"a,-1"}`,
		`{"v":1,"s":"a,1*64"}`, `{"v":1,"s":"a,1*x"}`, `{"v":1,"s":"a","l":[{"s":"!"}]}`,
	} {
		_, err := parseDoneRecord([]byte(value))
		if driver.ClassOf(err) != driver.Refused || errors.Is(err, errNewerRecord) != (value == `{"v":2}`) {
			t.Errorf("%s: %v", value, err)
		}
	}
	if r, err := parseDoneRecord([]byte(`{"v":1,"s":"a,1*63","new":true,"l":[{"s":"a","t":1,"a":2,"x":3,"b":"text"}]}`)); err != nil || len(r.slots) != maxSlots {
		t.Errorf("fields of a later version: %+v, %v", r, err)
	}
}

// TestF66_DoneRecordLayout checks that the stored form of a record stays as it is.
func TestF66_DoneRecordLayout(t *testing.T) {
	var r doneRecord
	for i := range 4 {
		r = r.with(doneAt(time.Unix(1_800_000_000+int64(i)*3600, 0), ""))
	}
	r.last = r.last[:1]
	value, err := r.format()
	const golden = `{"v":1,"s":"dobmkpuidq80,19xtf1ts0*3","l":[{"s":"dobmkpuidq80","t":1152921504606846977,"a":1700000000123,"b":{"h":"web-17.example.org","p":4711,"t":1700000000000}}]}`
	if err != nil || string(value) != golden {
		t.Errorf("the record is\n%s, %v, want\n%s", value, err, golden)
	}
	if fmt.Sprint(through(t, r).slots) != fmt.Sprint(r.slots) {
		t.Errorf("%v is read back as %v", r.slots, through(t, r).slots)
	}
}

// TestF66_DoneRecordLayoutOfAServer checks the stored form of a slot that a server did on
// behalf of another process, and that a Via alone says by whom a slot was done: where
// there is no room for it, nothing of the holder stays.
func TestF66_DoneRecordLayoutOfAServer(t *testing.T) {
	by := Holder{Via: `lockd "1"`, Since: time.UnixMilli(1_700_000_000_000)}
	r := (&doneRecord{}).with(Done{Slot: time.Unix(1_800_000_000, 0).UTC(), At: time.UnixMilli(1_700_000_000_123), Token: 7, By: by})
	value, err := r.format()
	const golden = `{"v":1,"s":"dobiqwe988w0","l":[{"s":"dobiqwe988w0","t":7,"a":1700000000123,"b":{"v":"lockd \"1\"","t":1700000000000}}]}`
	if err != nil || string(value) != golden {
		t.Errorf("the record is\n%s, %v, want\n%s", value, err, golden)
	}
	if got := through(t, r).last[0].By; got != by {
		t.Errorf("the holder is %+v, want %+v", got, by)
	}
	r.last[0].By.Via = strings.Repeat("<", driver.MaxMark/6)
	if got := through(t, r).last[0].By; got != (Holder{}) {
		t.Errorf("without room the holder is %+v", got)
	}
}

// TestRecordOfSlotsFarApart keeps slots whose distance in nanoseconds is greater than
// an int64.
func TestRecordOfSlotsFarApart(t *testing.T) {
	first := time.Date(1678, time.January, 1, 0, 0, 0, 0, time.UTC)
	last := time.Date(2261, time.December, 31, 23, 59, 59, 0, time.UTC)
	var r doneRecord
	for _, slot := range []time.Time{first, last} {
		r = through(t, r.with(Done{Slot: slot, At: time.UnixMilli(1), Token: 1}))
	}
	if want := []int64{last.UnixNano(), first.UnixNano()}; !slices.Equal(r.slots, want) {
		t.Errorf("slots %v, want %v", r.slots, want)
	}
	least := strconv.FormatInt(math.MinInt64, 36)
	for _, s := range []string{least + ",1", "0," + strconv.FormatUint(1<<63+1, 36), "5,0", least + ",1*2"} {
		if got, err := parseSlots(s); err == nil {
			t.Errorf("%s: %v, want an error", s, got)
		}
	}
}
