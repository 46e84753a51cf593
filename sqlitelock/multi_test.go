package sqlitelock

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

func mutex(id, name string) *driver.Ticket {
	return &driver.Ticket{ID: id, Name: name, Units: 1, Limit: 1, TTL: time.Minute, Meta: "meta of " + id}
}

func held(t *driver.Ticket) []driver.Ref { return []driver.Ref{{Ticket: t, State: driver.Held}} }

// TestOpenRaceCreatesOneFile starts sixteen processes at once without a file.
// The file is created once, and each process gets its turn.
func TestOpenRaceCreatesOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	var cs []*child
	for range 16 {
		cs = append(cs, spawn(t, nil, "open", path))
	}
	for _, c := range cs {
		c.expect("ready")
	}
	for _, c := range cs {
		c.say("go")
	}
	for _, c := range cs {
		if s := c.line(); s != "held" && s != "waiting" {
			t.Errorf("a process says %q", s)
		}
		c.end()
	}
	d := openAt(t, path, nil)
	if queue, err := d.Inspect(context.Background(), "n"); err != nil || len(queue.Tickets) != 0 || queue.Token == 0 {
		t.Errorf("the queue is %+v, %v", queue, err)
	}
}

// childTorn stops in the middle of a transaction that has joined and left.
func childTorn(args []string) error {
	d, err := Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	return d.worker.do(context.Background(), true, func(db sqlqueue.DB) ([]sqlqueue.Push, error) {
		ctx := context.Background()
		if _, _, err := d.queues.Join(ctx, db, mutex("torn:1", "torn"), "", true); err != nil {
			return nil, err
		}
		d.queues.Leave(ctx, db, held(mutex("test:1", "n")))
		fmt.Println("inside")
		select {}
	})
}

// TestF104_KilledInTransaction kills a process in the middle of a transaction.
// The transaction leaves no trace, and other processes wait no longer than
// until the process is dead.
func TestF104_KilledInTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	ctx := context.Background()
	mine := mutex("test:1", "n")
	if p, err := d.Join(ctx, mine, true); err != nil || p.State != driver.Held {
		t.Fatal(p, err)
	}
	c := spawn(t, nil, "torn", path)
	c.expect("inside")
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if p, err := d.Join(short, mutex("test:2", "other"), true); driver.ClassOf(err) != driver.Unavailable {
		t.Errorf("Join of a busy file: %+v, %v", p, err)
	}
	done := make(chan error, 1)
	go func() {
		ps, err := d.Renew(ctx, held(mine))
		if err == nil && ps[0].State != driver.Held {
			err = fmt.Errorf("%+v", ps[0])
		}
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	c.kill()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Renew: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still busy")
	}
	for name, want := range map[string]int{"torn": 0, "other": 0, "n": 1} {
		if queue, err := d.Inspect(ctx, name); err != nil || len(queue.Tickets) != want {
			t.Errorf("queue %s is %+v, %v", name, queue, err)
		}
	}
}

// childWrite joins and leaves until it is killed. It prints the tickets that
// have certainly left, and the tokens that it was granted.
func childWrite(args []string) error {
	d, err := Open(context.Background(), args[0], nil)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		t := mutex(fmt.Sprintf("%d:%d", os.Getpid(), i), "write")
		t.TTL = MinTTL
		p, err := d.Join(context.Background(), t, false)
		if err != nil {
			return err
		}
		if p.State == driver.Held {
			fmt.Println(p.Token)
			if _, err := d.Leave(context.Background(), held(t)); err != nil {
				return err
			}
		}
	}
}

// TestF104_KilledWriters kills processes at random instants while they write:
// the file stays sound, and tokens grow.
func TestF104_KilledWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	var last uint64
	for range 3 {
		a, b := spawn(t, nil, "write", path), spawn(t, nil, "write", path)
		a.line()
		a.kill()
		b.line()
		b.kill()
		for _, c := range []*child{a, b} {
			for s := range c.lines {
				if token, err := strconv.ParseUint(s, 10, 64); err != nil {
					t.Error(s)
				} else {
					last = max(last, token)
				}
			}
		}
		// The holds of a killed process end with their TTL.
		mine := mutex("test:"+strconv.FormatUint(last, 10), "write")
		var p driver.Status
		for limit := time.Now().Add(time.Minute); p.State != driver.Held && time.Now().Before(limit); {
			var err error
			if p, err = d.Join(context.Background(), mine, false); err != nil {
				t.Fatal(err)
			}
		}
		if p.State != driver.Held || p.Token <= last {
			t.Fatalf("%+v after token %d", p, last)
		}
		if _, err := d.Leave(context.Background(), held(mine)); err != nil {
			t.Fatal(err)
		}
	}
	if fs, err := d.Check(context.Background()); err != nil {
		t.Error(err)
	} else {
		for _, f := range fs {
			if f.Topic == "integrity" && f.Detail != "ok" {
				t.Error(f)
			}
		}
	}
}

// turn is one turn of a process: the time of its grant and the time at which it
// began to leave, by a clock that all processes share.
type turn struct {
	Granted, Left time.Duration
	Waited        bool
	Token         uint64
}

type turnReport struct {
	Turns  []turn
	Pushes int // pushes about a ticket
	Gaps   int // gaps
}

// childTurns takes turns with the other processes, and reports them.
func childTurns(args []string) error {
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	d, err := OpenURL(context.Background(), args[0])
	if err != nil {
		return err
	}
	var r turnReport
	pushes := make(chan driver.Status, 1)
	gaps := make(chan struct{}, 1000)
	err = d.Watch(context.Background(), func(id string, p driver.Status) {
		if id == "" {
			gaps <- struct{}{}
		} else {
			pushes <- p
		}
	})
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	for i := range rounds {
		t := mutex(fmt.Sprintf("%d:%d", os.Getpid(), i), "turns")
		p, err := d.Join(context.Background(), t, true)
		if err != nil {
			return err
		}
		waited := p.State == driver.Waiting
		if waited {
			select {
			case p = <-pushes:
				r.Pushes++
			case <-time.After(time.Minute):
				return fmt.Errorf("ticket %s was not told", t.ID)
			}
		}
		granted, _ := sinceBoot()
		left, _ := sinceBoot()
		r.Turns = append(r.Turns, turn{granted, left, waited, p.Token})
		if ps, err := d.Leave(context.Background(), held(t)); err != nil || ps[0].State != driver.Held {
			return fmt.Errorf("Leave: %+v, %w", ps, err)
		}
	}
	r.Gaps = len(gaps)
	r.Pushes += len(pushes)
	out, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fmt.Println(string(out))
	_, _ = in.ReadString('\n')
	return d.Close()
}

// TestHandOffNotifiesNextWaiterOnly hands a lock from process to process. Each
// waiter is notified once, no other process is notified, and turns follow the
// order of the tokens. The time of a hand-off between two processes is in the
// log.
func TestHandOffNotifiesNextWaiterOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		processes, rounds int
		options           string
	}{{2, 200, "?sync=normal"}, {8, 30, ""}} {
		t.Run(fmt.Sprintf("%d%s", c.processes, c.options), func(t *testing.T) {
			url := "sqlite:" + filepath.Join(t.TempDir(), "locks.db") + c.options
			var cs []*child
			for range c.processes {
				cs = append(cs, spawn(t, nil, "turns", url, strconv.Itoa(c.rounds)))
			}
			for _, c := range cs {
				c.expect("ready")
			}
			for _, c := range cs {
				c.say("go")
			}
			type owned struct {
				turn
				process int
			}
			var turns []owned
			waited, pushes, gaps := 0, 0, 0
			for i, c := range cs {
				var r turnReport
				if s := c.line(); json.Unmarshal([]byte(s), &r) != nil {
					t.Fatal(s)
				}
				for _, turn := range r.Turns {
					turns = append(turns, owned{turn, i})
					if turn.Waited {
						waited++
					}
				}
				pushes += r.Pushes
				gaps += r.Gaps
			}
			for _, c := range cs {
				c.say("end")
				c.end()
			}
			if len(turns) != c.processes*c.rounds || pushes != waited || gaps != 0 {
				t.Errorf("%d turns, of which %d waited, with %d pushes and %d gaps", len(turns), waited, pushes, gaps)
			}
			slices.SortFunc(turns, func(a, b owned) int { return int(a.Granted - b.Granted) })
			var latency []time.Duration
			for i := 1; i < len(turns); i++ {
				a, b := turns[i-1], turns[i]
				if b.Granted < a.Left || b.Token <= a.Token {
					t.Fatalf("process %d had %+v, then process %d %+v", a.process, a.turn, b.process, b.turn)
				}
				if a.process != b.process && b.Waited {
					latency = append(latency, b.Granted-a.Left)
				}
			}
			slices.Sort(latency)
			if n := len(latency); n > 0 {
				t.Logf("%d hand-offs between processes: median %v, 90 %% within %v, 99 %% within %v",
					n, latency[n/2], latency[n*9/10], latency[n*99/100])
			}
		})
	}
}
