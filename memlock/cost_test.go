package memlock

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestAllocationsOfJoinAndLeave(t *testing.T) {
	d := New(NewStore())
	i := 0
	ids := make([]string, 2000)
	for i := range ids {
		ids[i] = fmt.Sprintf("0191f5a4-0000-7000-8000-000000000000:%d", i)
	}
	tk := ticket1("", "n")
	ref := []driver.Ref{{Ticket: tk}}
	got := testing.AllocsPerRun(1000, func() {
		tk.ID = ids[i]
		i++
		if st, err := d.Join(bg, tk, true); err != nil || st.State != driver.Held {
			t.Fatal(st, err)
		}
		if _, err := d.Leave(bg, ref); err != nil {
			t.Fatal(err)
		}
	})
	if got > 1 { // the replies of Leave
		t.Errorf("Join and Leave allocate %v times", got)
	}
}

func BenchmarkJoinLeave(b *testing.B) {
	d := New(NewStore())
	tk := ticket1("", "n")
	ref := []driver.Ref{{Ticket: tk}}
	ids := make([]string, 1024)
	for i := range ids {
		ids[i] = fmt.Sprintf("0191f5a4-0000-7000-8000-000000000000:%d", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tk.ID = ids[i%len(ids)]
		if _, err := d.Join(bg, tk, true); err != nil {
			b.Fatal(err)
		}
		if _, err := d.Leave(bg, ref); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandOff measures a hand-off in a queue of 1,000 that is never empty.
func BenchmarkHandOff(b *testing.B) {
	d := New(NewStore())
	if err := d.Watch(bg, func(string, driver.Status) {}); err != nil {
		b.Fatal(err)
	}
	const waiting = 1000
	ring := make([]*driver.Ticket, waiting)
	next := func(i int) *driver.Ticket {
		tk := ticket1(fmt.Sprintf("0191f5a4-0000-7000-8000-000000000000:%d", i), "n")
		ring[i%waiting] = tk
		join(b, d, tk, true)
		return tk
	}
	for i := range waiting {
		next(i)
	}
	b.ReportAllocs()
	for i := waiting; b.Loop(); i++ {
		leave(b, d, ring[i%waiting])
		next(i)
	}
}

func BenchmarkRenew200(b *testing.B) {
	d := New(NewStore())
	refs := make([]driver.Ref, 200)
	for i := range refs {
		refs[i].Ticket = ticket1(fmt.Sprintf("c:%d", i), fmt.Sprint(i))
		join(b, d, refs[i].Ticket, true)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Renew(bg, refs); err != nil {
			b.Fatal(err)
		}
	}
}
