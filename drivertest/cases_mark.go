package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// marks reads and sets the marks of names by one client.
type marks struct {
	w *stage
	d driver.Driver
}

// marker returns the driver's marks.
func (m marks) marker() driver.Marker {
	m.w.Helper()
	found, ok := m.d.(driver.Marker)
	if !ok {
		m.w.Fatalf("Traits say Marks, and %T has none", m.d)
	}
	return found
}

// mark reads the mark of a name and expects one.
func (m marks) mark(name string, want driver.Mark) {
	m.w.Helper()
	ctx, cancel := m.w.limit()
	defer cancel()
	got, err := m.marker().Mark(ctx, name)
	if err != nil {
		m.w.Fatalf("Mark of %.40q: %v", name, err)
	}
	if got.Token != want.Token || !bytes.Equal(got.Value, want.Value) {
		m.w.Errorf("the mark of %.40q is %s, want %s", name, formatMark(got), formatMark(want))
	}
}

// setMark sets the mark of a name.
func (m marks) setMark(name string, to driver.Mark) {
	m.w.Helper()
	if err := m.trySetMark(name, to); err != nil {
		m.w.Fatalf("SetMark of %.40q to %s: %v", name, formatMark(to), err)
	}
}

func (m marks) trySetMark(name string, to driver.Mark) error {
	ctx, cancel := m.w.limit()
	defer cancel()
	return m.marker().SetMark(ctx, name, to)
}

// setStaleMark sets a mark that has to be refused.
func (m marks) setStaleMark(name string, to driver.Mark) {
	m.w.Helper()
	err := m.trySetMark(name, to)
	if !errors.Is(err, driver.ErrStaleMark) || driver.ClassOf(err) != driver.Refused {
		m.w.Errorf("SetMark of %.40q to %s: error is %v, of class %v; want %q", name, formatMark(to), err, driver.ClassOf(err), driver.ErrStaleMark)
	}
}

func formatMark(m driver.Mark) string {
	if len(m.Value) > 40 {
		return fmt.Sprintf("%d with %.40q and %d bytes more", m.Token, m.Value, len(m.Value)-40)
	}
	return fmt.Sprintf("%d with %q", m.Token, m.Value)
}

func markOf(token uint64, value string) driver.Mark {
	return driver.Mark{Token: token, Value: []byte(value)}
}

// midToken is a token as stores of today grant them: below 2^53.
const midToken uint64 = 1 << 52

var markCases = []Case{
	{Name: "mark", Rules: "Mark 3, SetMark 1, 2", Needs: Marks, run: func(w *world) {
		// A name has no mark until one is set; then every client reads the last
		// one, and the same one again changes nothing.
		a, b := w.client(), w.client()
		name := w.name("n")
		b.mark(name, driver.Mark{})
		for _, m := range []driver.Mark{markOf(1, "one"), markOf(1, "one"), markOf(1, "other"), markOf(midToken, "two"), markOf(midToken+1, "three"), markOf(midToken+1, "three")} {
			a.setMark(name, m)
			b.mark(name, m)
			a.mark(name, m)
		}
		b.mark(w.name("other"), driver.Mark{})
	}},
	{Name: "mark-stale", Rules: "SetMark 1", Needs: Marks, run: func(w *world) {
		// A mark with a lower token is refused, whoever sets it, and changes
		// nothing. Tokens are numbers: 9 is below 10.
		a, b := w.client(), w.client()
		for i, tokens := range [][2]uint64{{2, 1}, {10, 9}, {256, 255}, {midToken, midToken - 1}, {midToken * 2, 1}, {midToken*16 + 256, midToken*16 + 255}} {
			name := w.name(fmt.Sprint("n", i))
			a.setMark(name, markOf(tokens[0], "new"))
			b.setStaleMark(name, markOf(tokens[1], "old"))
			a.setStaleMark(name, markOf(tokens[1], "new"))
			b.mark(name, markOf(tokens[0], "new"))
		}
	}},
	{Name: "mark-after-grant", Rules: "Mark 1", Needs: Marks, run: func(w *world) {
		// The next holder sees the mark that was answered before its grant.
		clients := []*client{w.client(), w.client(), w.client()}
		const turns = 12
		var last *driver.Ticket
		for i := range turns {
			c := clients[i%len(clients)]
			t := c.mutex("n")
			if i == 0 {
				c.join(t, driver.Held)
			} else {
				p := c.join(t, driver.Waiting)
				before := clients[(i-1)%len(clients)]
				before.setMark(t.Name, markOf(uint64(i), fmt.Sprint("turn ", i)))
				before.leave(last, driver.Held)
				c.awaitGrant(t, p)
				c.mark(t.Name, markOf(uint64(i), fmt.Sprint("turn ", i)))
			}
			last = t
		}
	}},
	{Name: "mark-read", Rules: "Mark 2, 3", Needs: Marks, run: func(w *world) {
		// Reading changes nothing, with a mark and without one.
		a, b := w.client(), w.client()
		name, none := w.name("n"), w.name("none")
		a.setMark(name, markOf(7, "seven"))
		for range 3 {
			a.mark(name, markOf(7, "seven"))
			b.mark(name, markOf(7, "seven"))
			b.mark(none, driver.Mark{})
		}
		a.setMark(name, markOf(7, "seven"))
		a.setMark(none, markOf(1, ""))
		b.mark(none, markOf(1, ""))
	}},
	{Name: "mark-long", Rules: "SetMark 3, 6", Needs: Marks, run: func(w *world) {
		// Every byte of the longest value comes back, and the empty value.
		a, b := w.client(), w.client()
		long := make([]byte, driver.MaxMark)
		for i := range long {
			long[i] = byte(i * 7)
		}
		for i, v := range [][]byte{long, nil, []byte("\x00"), []byte("'\"\\\n%s"), bytes.Repeat([]byte{0xff}, driver.MaxMark)} {
			m := driver.Mark{Token: uint64(i + 1), Value: v}
			a.setMark(w.name("n"), m)
			b.mark(w.name("n"), m)
		}
	}},
	{Name: "mark-apart", Rules: "SetMark 4", Needs: Marks, run: func(w *world) {
		// A mark is no ticket: Names, Inspect and Break do not see it, and a queue
		// with a holder and a waiter stays as it is.
		a, b := w.client(), w.client()
		alone := w.name("alone")
		a.setMark(alone, markOf(midToken, "alone"))
		w.checkEmpty(alone)
		ta, tb := a.mutex("n"), b.mutex("n")
		held := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		b.setMark(ta.Name, markOf(midToken, "n"))
		w.checkQueue(ta.Name, []*driver.Ticket{ta}, tb)
		for _, name := range a.listNames(w.tag) {
			if name != ta.Name {
				w.Errorf("Names lists %q, which has a mark and no ticket", name)
			}
		}
		if p := a.renew(ta, driver.Held); p.Token != held.Token {
			w.Errorf("token %d of the holder has become %d", held.Token, p.Token)
		}
		ctx, cancel := w.limit()
		defer cancel()
		if err := b.d.Break(ctx, alone, ta.ID); !errors.Is(err, driver.ErrNoTicket) {
			w.Errorf("Break of a name with a mark: error is %v, want %q", err, driver.ErrNoTicket)
		}
		a.leave(ta, driver.Held)
		b.mark(ta.Name, markOf(midToken, "n"))
	}},
	{Name: "mark-survives", Rules: "SetMark 3", Needs: Marks, run: func(w *world) {
		// The mark outlasts the tickets, the leases and the client that set it.
		a, b := w.client(), w.client()
		t := a.mutex("n")
		a.join(t, driver.Held)
		a.setMark(t.Name, markOf(1, "released"))
		a.leave(t, driver.Held)
		b.mark(t.Name, markOf(1, "released"))

		t = a.shortLived(a.mutex("n"))
		a.join(t, driver.Held)
		a.setMark(t.Name, markOf(2, "expired"))
		a.closed = true
		if err := a.d.Close(); err != nil {
			w.Errorf("Close: %v", err)
		}
		next := b.mutex("n")
		b.awaitGrant(next, b.joinAny(next))
		b.mark(t.Name, markOf(2, "expired"))
		b.leave(next, driver.Held)
		if w.h.bubble {
			time.Sleep(driver.MarkTTL)
		}
		w.client().mark(t.Name, markOf(2, "expired"))
	}},
	{Name: "mark-names", Rules: "Driver 9, SetMark 1", Needs: Marks, run: func(w *world) {
		// Every name has a mark of its own.
		c := w.client()
		names := []string{w.tag + strings.Repeat("n", driver.MaxName-len(w.tag)-1) + "a", w.tag + strings.Repeat("n", driver.MaxName-len(w.tag)-1) + "b"}
		for _, s := range Nasty() {
			names = append(names, w.tag+s)
		}
		for i, name := range names {
			c.setMark(name, markOf(uint64(i+1), fmt.Sprint("mark ", i)))
		}
		for i, name := range slices.Backward(names) {
			c.mark(name, markOf(uint64(i+1), fmt.Sprint("mark ", i)))
		}
	}},
	{Name: "mark-one-step", Rules: "SetMark 1, Driver 1", Needs: Marks, run: func(w *world) {
		// Clients that set marks at the same time never replace a greater token.
		clients := []*client{w.client(), w.client(), w.client(), w.client()}
		name := w.name("n")
		const rounds = 25
		var (
			mu       sync.Mutex
			greatest uint64
			wrong    []error
			set      sync.WaitGroup
		)
		for round := range rounds {
			for i, c := range clients {
				set.Go(func() {
					token := uint64(round*len(clients) + (i*3+round)%len(clients) + 1)
					ctx, cancel := context.WithTimeout(context.Background(), w.maxWait())
					defer cancel()
					err := c.d.(driver.Marker).SetMark(ctx, name, markOf(token, fmt.Sprint("mark ", token)))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						greatest = max(greatest, token)
					case !errors.Is(err, driver.ErrStaleMark) && driver.ClassOf(err) != driver.NotDone:
						wrong = append(wrong, err)
					}
				})
			}
			set.Wait()
			clients[0].mark(name, markOf(greatest, fmt.Sprint("mark ", greatest)))
		}
		if len(wrong) > 0 {
			w.Errorf("%d calls of SetMark have an error; the first: %v", len(wrong), wrong[0])
		}
	}},
}
