package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Spoil returns the bytes to send instead of an answer, and whether the
// connection ends with them.
type Spoil func(answer []byte) (instead []byte, end bool)

// garbled are the ways to spoil an answer.
var garbled = map[string]Spoil{
	"half of it": func(a []byte) ([]byte, bool) { return a[:len(a)/2], true },
	"bits flipped": func(a []byte) ([]byte, bool) {
		b := bytes.Clone(a)
		for i := range b {
			b[i] ^= 0x55
		}
		return b, false
	},
	"another protocol": func([]byte) ([]byte, bool) { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), true },
	"a huge length": func([]byte) ([]byte, bool) {
		return []byte("$9223372036854775807\r\n\xff\xff\xff\xff\xff\xff\xff\x7f"), true
	},
	"nothing but zeros": func(a []byte) ([]byte, bool) { return make([]byte, max(len(a), 64)), true },
}

// Garbling is a test of a driver that receives answers that it cannot
// understand. At, Driver and Direct are required.
type Garbling struct {
	At     []*Garbler    // all spoil their answers at the same time
	Driver driver.Driver // connects through them
	Direct driver.Driver // connects to the store without them

	More   map[string]Spoil // ways in addition to the usual ones
	Except []string         // the names of ways to leave out
	// Serves means that requests are answered all the same, because other
	// servers make up for the spoilt answers.
	Serves bool
	// Wanted lets another client try to take the held lock meanwhile.
	Wanted bool
	// Asks makes the driver contact servers that its requests leave out; nil:
	// its requests reach all of them.
	Asks func()
	// Open opens another driver by the same way, which must fail; nil: skip
	// that.
	Open func(ctx context.Context) error
}

// GarbledAnswers runs [Garbling.Run] for a driver that has one server, behind
// g. It leaves out the ways to spoil an answer that are named in except.
func GarbledAnswers(t *testing.T, g *Garbler, d, direct driver.Driver, except ...string) {
	t.Helper()
	(&Garbling{At: []*Garbler{g}, Driver: d, Direct: direct, Except: except}).Run(t)
}

const (
	// garbledTimeout bounds the wait for a request that may get no answer.
	garbledTimeout = 100 * time.Millisecond
	// lateTimeout separates errors of the machine from those of the driver:
	// where other servers make up for the answers and one of them was late, the
	// request is repeated.
	lateTimeout = 500 * time.Millisecond
)

// Run spoils answers in one way after the other. It checks that an answer that
// cannot be understood is an error that promises nothing and refuses nothing,
// ends no hold, grants to no other client and answers no other request, and
// that everything goes on with the next right answer.
func (g *Garbling) Run(t *testing.T) {
	t.Helper()
	r := &garbledRun{Garbling: g, T: t}
	_, _ = rand.Read(r.id[:])
	held := r.ticket("held")
	p := r.eventually("before it", "Join", r.join, held)
	if p.State != driver.Held {
		t.Fatalf("Join: %+v", p)
	}
	ways := maps.Clone(garbled)
	maps.Copy(ways, g.More)
	for name, how := range ways {
		if !slices.Contains(g.Except, name) {
			r.spoilInOneWay(name, how, held, p.Token)
		}
	}
}

type garbledRun struct {
	*Garbling
	*testing.T
	id [16]byte
	n  int
}

func (r *garbledRun) ticket(what string) *driver.Ticket {
	r.n++
	return &driver.Ticket{
		ID:   fmt.Sprintf("%x-%x-%x-%x-%x:%d", r.id[:4], r.id[4:6], r.id[6:8], r.id[8:10], r.id[10:], r.n),
		Name: fmt.Sprintf("garbled/%x/%s", r.id, what), Units: 1, Limit: 1, TTL: 30 * time.Second,
	}
}

func (r *garbledRun) renew(tk *driver.Ticket, limit time.Duration) (driver.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ps, err := r.Driver.Renew(ctx, []driver.Ref{{Ticket: tk, State: driver.Held}})
	if err != nil {
		return driver.Status{}, err
	}
	return ps[0], ps[0].Err
}

func (r *garbledRun) join(tk *driver.Ticket, limit time.Duration) (driver.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return r.Driver.Join(ctx, tk, true)
}

// spoilInOneWay spoils answers in one way.
func (r *garbledRun) spoilInOneWay(name string, how Spoil, held *driver.Ticket, token uint64) {
	other := r.ticket(name)
	var heal []func()
	for _, g := range r.At {
		heal = append(heal, g.Spoil(how))
	}
	limit := garbledTimeout
	if r.Serves {
		limit = time.Minute
	}
	mayHold := map[*driver.Ticket]bool{held: r.Wanted} // the tickets whose drivers reported a grant
	for _, tk := range []*driver.Ticket{held, other} {
		what, ask := "Renew", r.renew
		if tk == other {
			what, ask = "Join", r.join
		}
		begun := time.Now()
		p, err := ask(tk, limit)
		for again := 0; r.Serves && again < 3 && err != nil && driver.ClassOf(err) != driver.Refused && time.Since(begun) > lateTimeout; again++ {
			begun = time.Now()
			p, err = ask(tk, limit)
		}
		switch {
		case err != nil && (r.Serves || driver.ClassOf(err) == driver.Refused):
			r.Errorf("%s: %s: %v", name, what, err)
		case err == nil && p.State != driver.Held:
			r.Errorf("%s: %s takes it for %v", name, what, p.State)
		case err == nil:
			mayHold[tk] = r.Wanted
		}
	}
	for tk, wanted := range mayHold {
		if !wanted {
			continue
		}
		rival := r.ticket("")
		rival.Name = tk.Name
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if p, err := r.Direct.Join(ctx, rival, false); err == nil && p.State != driver.Gone {
			r.Errorf("%s: the lock of another is %v, token %d", name, p.State, p.Token)
		}
		cancel()
	}
	if r.Open != nil {
		ctx, cancel := context.WithTimeout(context.Background(), garbledTimeout)
		if r.Open(ctx) == nil {
			r.Errorf("%s: it can be opened", name)
		}
		cancel()
	}
	waitFor(r, "an answer is spoilt", func() bool {
		if r.Asks != nil {
			r.Asks()
		}
		return slices.ContainsFunc(r.At, func(g *Garbler) bool { return g.spoils() > 0 })
	})
	for _, f := range heal {
		f()
	}
	if p := r.eventually(name, "Renew", r.renew, held); p.State != driver.Held || p.Token != token {
		r.Errorf("%s: afterwards the hold is %v with token %d, which was %d", name, p.State, p.Token, token)
	}
	if p := r.eventually(name, "Join", r.join, other); p.State != driver.Held || p.Token == 0 {
		r.Errorf("%s: afterwards the other ticket is %v with token %d", name, p.State, p.Token)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := r.Direct.Inspect(ctx, other.Name)
	if err != nil || len(l.Tickets) != 1 || l.Tickets[0].ID != other.ID {
		r.Errorf("%s: the store has %+v of it, %v", name, l.Tickets, err)
	}
	if ps, err := r.Driver.Leave(ctx, []driver.Ref{{Ticket: other, State: driver.Held}}); err != nil || ps[0].Err != nil || ps[0].State != driver.Held {
		r.Errorf("%s: Leave: %+v, %v", name, ps, err)
	}
}

// eventually repeats a request until it is answered.
func (r *garbledRun) eventually(name, what string, ask func(*driver.Ticket, time.Duration) (driver.Status, error), tk *driver.Ticket) driver.Status {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		p, err := ask(tk, 5*time.Second)
		if err == nil {
			return p
		}
		if time.Since(begun) > 30*time.Second {
			r.Fatalf("%s: %s, after long: %v", name, what, err)
		}
	}
}
