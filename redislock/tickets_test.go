package redislock

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// patience bounds each wait for an event; it only decides when to give up.
const patience = time.Minute

// eventually waits until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// examinable is the interface of all drivers of this package.
type examinable interface {
	driver.Driver
	driver.Checker
	driver.Identifier
}

// A member is a driver that watches for pushes, and makes tickets of its own.
type member struct {
	examinable
	t    testing.TB
	uuid string
	n    atomic.Int64

	channel string // of the driver

	mu     sync.Mutex
	pushes map[string][]driver.Status // by ticket; gaps are under ""
}

// plainScripts are the scripts for a single server.
var plainScripts = wire.NewScripts()

func enter(t testing.TB, s *servers.RedisServer, query string) *member {
	t.Helper()
	return listen(t, openOn(t, s, query))
}

// quiet returns a member without pushes.
func quiet(t testing.TB, d examinable) *member {
	var b [16]byte
	rand.Read(b[:])
	channel := ""
	switch d := d.(type) {
	case *Driver:
		channel = d.server.Channel
	case *Cluster:
		channel = d.nodes.Channel
	case *Sentinel:
		channel = d.channel
	}
	return &member{
		channel:    channel,
		examinable: d, t: t,
		uuid:   fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]),
		pushes: make(map[string][]driver.Status),
	}
}

func listen(t testing.TB, d examinable) *member {
	t.Helper()
	m := quiet(t, d)
	err := d.Watch(context.Background(), func(id string, p driver.Status) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pushes[id] = append(m.pushes[id], p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *member) ticket(name string) *driver.Ticket {
	return &driver.Ticket{
		ID: fmt.Sprintf("%s:%d", m.uuid, m.n.Add(1)), Name: name,
		Units: 1, Limit: 1, TTL: 30 * time.Second, Meta: "meta",
	}
}

// short returns a ticket with this TTL.
func (m *member) short(name string, ttl time.Duration) *driver.Ticket {
	t := m.ticket(name)
	t.TTL = ttl
	return t
}

func (m *member) heard(id string) []driver.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]driver.Status(nil), m.pushes[id]...)
}

// granted waits for the push of a grant. Where there are no pushes, it renews
// once: the grant has been made.
func (m *member) granted(t *driver.Ticket) driver.Status {
	m.t.Helper()
	if !m.Traits().Push {
		return m.keeps(t, driver.Held)
	}
	var p driver.Status
	eventually(m.t, "a push says that "+t.ID+" holds", func() bool {
		for _, p = range m.heard(t.ID) {
			if p.State == driver.Held {
				return true
			}
		}
		return false
	})
	return p
}

func (m *member) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	m.t.Cleanup(cancel)
	return ctx
}

// take joins, and fails the test unless the answer has the wanted state.
func (m *member) take(t *driver.Ticket, want driver.State) driver.Status {
	m.t.Helper()
	p, err := m.Join(m.ctx(), t, true)
	if err != nil || p.State != want {
		m.t.Fatalf("Join(%s): %v, %v; want %v", t.ID, p.State, err, want)
	}
	return p
}

func ref(t *driver.Ticket) driver.Ref { return driver.Ref{Ticket: t, State: driver.Held} }

func (m *member) renew(t *driver.Ticket) driver.Status {
	m.t.Helper()
	ps, err := m.Renew(m.ctx(), []driver.Ref{ref(t)})
	if err == nil {
		err = ps[0].Err
	}
	if err != nil {
		m.t.Fatalf("Renew(%s): %v", t.ID, err)
	}
	return ps[0]
}

// keeps renews, and fails the test unless the answer has the wanted state.
func (m *member) keeps(t *driver.Ticket, want driver.State) driver.Status {
	m.t.Helper()
	p := m.renew(t)
	if p.State != want {
		m.t.Fatalf("Renew(%s): %v, want %v", t.ID, p.State, want)
	}
	return p
}

// leaves leaves, and fails the test unless the ticket was in the wanted state.
func (m *member) leaves(t *driver.Ticket, want driver.State) {
	m.t.Helper()
	ps, err := m.Leave(m.ctx(), []driver.Ref{ref(t)})
	if err == nil {
		err = ps[0].Err
	}
	if err != nil || ps[0].State != want {
		m.t.Fatalf("Leave(%s): %v, %v; want %v", t.ID, ps[0].State, err, want)
	}
}

// class fails the test unless join, renew and leave all return an error of the
// wanted class.
func (m *member) class(t *testing.T, want driver.Class, ticket *driver.Ticket) {
	t.Helper()
	_, err := m.Join(m.ctx(), m.ticket(ticket.Name), true)
	if err == nil || driver.ClassOf(err) != want {
		t.Errorf("Join: %v, want the class %v", err, want)
	}
	for name, call := range map[string]func(context.Context, []driver.Ref) ([]driver.Status, error){"Renew": m.Renew, "Leave": m.Leave} {
		ps, err := call(m.ctx(), []driver.Ref{ref(ticket)})
		if err == nil {
			err = ps[0].Err
		}
		if err == nil || driver.ClassOf(err) != want {
			t.Errorf("%s: %v, want the class %v", name, err, want)
		}
	}
}

func keysOf(name string) [wire.NumKeys]string { return wire.NewQueueKeys(DefaultPrefix, name).Keys }
