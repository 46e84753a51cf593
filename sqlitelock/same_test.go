package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestSameAnswersAsMemory runs one random program on memlock, which is the
// specification, and on a file, and compares all answers and pushes. It runs in
// the time of a bubble, so that deadlines and tokens agree to the microsecond.
func TestSameAnswersAsMemory(t *testing.T) {
	seeds := 8
	if s, err := strconv.Atoi(os.Getenv("HOLDFAST_TEST_SEEDS")); err == nil {
		seeds = s
	}
	dir := t.TempDir()
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			p := newProgram(t, uint64(seed), filepath.Join(dir, fmt.Sprint(seed)))
			for i := 0; i < 250 && !t.Failed(); i++ {
				p.step()
			}
			p.end()
			if t.Failed() {
				for _, line := range p.log[max(0, len(p.log)-80):] {
					t.Log(line)
				}
				t.Fatalf("seed %d", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

const programClients = 3

type program struct {
	*testing.T
	rng     *rand.Rand
	mem     [programClients]driver.Driver
	file    [programClients]*Driver
	memTold []string
	told    []string
	tickets []*driver.Ticket
	client  map[*driver.Ticket]int
	left    map[*driver.Ticket]bool // certainly, so they do not come back
	n       int
	log     []string
}

func newProgram(t *testing.T, seed uint64, path string) *program {
	p := &program{T: t, rng: rand.New(rand.NewPCG(seed, 1)), client: make(map[*driver.Ticket]int), left: make(map[*driver.Ticket]bool)}
	store := memlock.NewStore()
	start := time.Now()
	c := clock{
		boot: func() (time.Duration, error) { return time.Hour + time.Since(start), nil },
		id:   func() (string, error) { return "bubble", nil },
		wall: time.Now,
	}
	tell := func(to *[]string, i int) func(string, driver.Status) {
		return func(id string, p driver.Status) { *to = append(*to, fmt.Sprintf("%d %s %+v", i, id, p)) }
	}
	for i := range programClients {
		p.mem[i] = memlock.New(store)
		if err := p.mem[i].Watch(context.Background(), tell(&p.memTold, i)); err != nil {
			t.Fatal(err)
		}
		// Sweeps advance queues too, at other times than memlock.
		d, err := open(context.Background(), path, &Options{Sync: SyncNormal, noSweeps: true}, c)
		if err != nil {
			t.Fatal(err)
		}
		// Notifications come from the kernel, which does not know the bubble's
		// time. So the client's file is read after each step instead.
		f, address, err := d.beside.mailbox()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		w := &watcher{d: d, ctx: ctx, cancel: cancel, notify: tell(&p.told, i), address: address, file: f,
			path: filepath.Join(d.beside.folder(), address), ended: make(chan struct{})}
		close(w.ended)
		d.watch.Store(w)
		p.file[i] = d
	}
	return p
}

func (p *program) end() {
	for i := range programClients {
		p.file[i].watch.Load().release()
		if err := p.file[i].Close(); err != nil {
			p.Error(err)
		}
		_ = p.mem[i].Close()
	}
}

// ticket makes a ticket for a random queue. The kind of the queue usually
// follows from its name.
func (p *program) ticket() *driver.Ticket {
	p.n++
	t := &driver.Ticket{
		ID:   fmt.Sprintf("00000000-0000-0000-0000-%012d:%d", p.rng.IntN(programClients), p.n),
		Name: []string{"mutex", "rw", "sem"}[p.rng.IntN(3)],
		TTL:  []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[p.rng.IntN(3)],
		Meta: fmt.Sprint("meta ", p.n),
	}
	switch t.Name {
	case "mutex":
		t.Units, t.Limit = 1, 1
	case "rw":
		t.Units, t.Limit = 1, driver.RWLimit
		if p.rng.IntN(3) == 0 {
			t.Units = driver.RWLimit
		}
	default:
		t.Units, t.Limit = 1+p.rng.Int64N(3), 4
	}
	if p.rng.IntN(40) == 0 {
		t.Limit++
	}
	if p.rng.IntN(4) == 0 {
		t.Owner = fmt.Sprint("owner ", p.rng.IntN(3))
	}
	if t.Owner == "" && p.rng.IntN(8) == 0 { // a shared place may forget the minimum token of a ticket that left
		t.MinToken = p.rng.Uint64N(1000)
	}
	if old := p.old(); old != nil && p.rng.IntN(6) == 0 {
		t.Name, t.Units, t.Limit, t.Replaces = old.Name, old.Units, old.Limit, old
	}
	return t
}

func (p *program) old() *driver.Ticket {
	if len(p.tickets) == 0 {
		return nil
	}
	// Usually a recent ticket, which usually still has its place.
	return p.tickets[max(0, len(p.tickets)-1-p.rng.IntN(12))]
}

func (p *program) step() {
	var what, mem, file string
	say := func(v any, err error) string {
		if err != nil {
			return fmt.Sprintf("%v error %v", v, driver.ClassOf(err))
		}
		return fmt.Sprintf("%+v", v)
	}
	ctx := context.Background()
	switch n := p.rng.IntN(20); {
	case n < 7: // a new ticket, or an old one again
		t := p.ticket()
		if old := p.old(); old != nil && n == 0 && !p.left[old] {
			t = old
		} else {
			p.tickets = append(p.tickets, t)
			p.client[t] = p.rng.IntN(programClients)
		}
		wait := p.rng.IntN(3) > 0
		i := p.client[t]
		what = fmt.Sprintf("%d Join(%+v, %v)", i, *t, wait)
		m, merr := p.mem[i].Join(ctx, t, wait)
		f, ferr := p.file[i].Join(ctx, t, wait)
		if !wait && f.State == driver.Gone && f.Recheck == 0 {
			m.Recheck = 0 // the tables do not always tell when the holder expires (Join 10)
		}
		mem, file = say(m, merr), say(f, ferr)
	case n < 15:
		i := p.rng.IntN(programClients)
		var refs []driver.Ref
		for range 1 + p.rng.IntN(4) {
			t := p.old()
			if t == nil || slices.ContainsFunc(refs, func(r driver.Ref) bool { return r.Name == t.Name }) {
				continue // a file may process the tickets of one queue in another order
			}
			refs = append(refs, driver.Ref{Ticket: t, State: driver.State(1 + p.rng.IntN(2))})
		}
		if n < 12 {
			what = "Renew"
			mem = say(p.mem[i].Renew(ctx, refs))
			file = say(p.file[i].Renew(ctx, refs))
		} else {
			what = "Leave"
			for k := range refs {
				refs[k].JoinPending = p.rng.IntN(3) == 0
				p.left[refs[k].Ticket] = !refs[k].JoinPending
			}
			mem = say(p.mem[i].Leave(ctx, refs))
			file = say(p.file[i].Leave(ctx, refs))
		}
		for _, r := range refs {
			what += fmt.Sprintf(" %s %s(%v)", r.Name, r.ID, r.State)
		}
	case n < 16 && len(p.tickets) > 0:
		t := p.old()
		what = "Break " + t.ID
		mem = say(nil, p.mem[0].Break(ctx, t.Name, t.ID))
		file = say(nil, p.file[0].Break(ctx, t.Name, t.ID))
	case n < 17:
		name := []string{"mutex", "rw", "sem"}[p.rng.IntN(3)]
		what = "Inspect " + name
		mem = say(p.mem[0].Inspect(ctx, name))
		file = say(p.file[0].Inspect(ctx, name))
		if errors.Is(ctx.Err(), context.Canceled) {
			return
		}
	case n < 18 && p.rng.IntN(8) == 0: // more than one request may drop or grant
		name := []string{"mutex", "rw", "sem"}[p.rng.IntN(3)]
		what = "Join many of " + name
		for range driver.MaxSteps + 10 {
			t := p.ticket()
			for t.Name != name || t.Replaces != nil || t.Owner != "" {
				t = p.ticket()
			}
			t.TTL = time.Second
			p.tickets = append(p.tickets, t)
			mem += say(p.mem[0].Join(ctx, t, true)) + "\n"
			file += say(p.file[0].Join(ctx, t, true)) + "\n"
		}
	default:
		d := time.Duration(p.rng.IntN(2500)) * time.Millisecond
		if p.rng.IntN(20) == 0 {
			d = 3 * sqlqueue.TombstoneTTL // longer than any tombstone lasts
		}
		what = fmt.Sprint("Sleep ", d)
		time.Sleep(d)
	}
	for _, d := range p.file {
		d.watch.Load().read()
	}
	slices.Sort(p.memTold)
	slices.Sort(p.told)
	p.log = append(p.log, fmt.Sprintf("%s = %s; told %v", what, mem, p.memTold))
	if mem != file || !slices.Equal(p.memTold, p.told) {
		p.Errorf("%s\nmemory: %s, told %v\nfile:   %s, told %v", what, mem, p.memTold, file, p.told)
	}
	p.memTold, p.told = nil, nil
}
