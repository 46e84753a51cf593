package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// wireMessages has what the store receives and sends.
type wireMessages struct {
	mu    sync.Mutex
	begun time.Time
	all   []message
}

func (m *wireMessages) add(machine int, what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, message{at: time.Since(m.begun), machine: machine, what: what})
}

// watched is a machine's driver, which notes its messages.
type watched struct {
	*memlock.Driver
	machine int
	m       *wireMessages
}

func (d watched) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.m.add(d.machine, "join")
	return d.Driver.Join(ctx, t, wait)
}

func (d watched) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.m.add(d.machine, "renew")
	return d.Driver.Renew(ctx, refs)
}

func (d watched) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.m.add(d.machine, "leave")
	return d.Driver.Leave(ctx, refs)
}

func (d watched) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	return d.Driver.Watch(ctx, func(id string, st driver.Status) {
		d.m.add(d.machine, "push")
		notify(id, st)
	})
}

// TestQueuePlayedInMemory plays the second scene of the picture in memory: the store
// receives and sends the messages of the picture, and has its queues.
func TestQueuePlayedInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore()
		m := &wireMessages{begun: time.Now()}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var ended sync.WaitGroup
		var clients []*holdfast.Client
		for machine := range 3 {
			c, err := holdfast.New(watched{memlock.New(store), machine, m})
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		operator, err := holdfast.New(memlock.New(store))
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range queueScene {
			time.Sleep(step.at - time.Since(m.begun))
			if step.what == "join" {
				ended.Go(func() {
					h, err := clients[step.machine].Mutex("nightly").Lock(ctx)
					if err != nil {
						return // the scene is over
					}
					if step.machine == 0 {
						time.Sleep(queueScene[3].at)
					} else {
						<-ctx.Done()
					}
					if err := h.Unlock(); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			seen, err := operator.Inspect(t.Context(), "nightly")
			if err != nil {
				t.Fatal(err)
			}
			if n := len(seen.Holders) + len(seen.Waiters); len(seen.Holders) != 1 || n != len(strings.Fields(step.queue)) {
				t.Errorf("after %v: %d holders of %d, the picture has %q", step.at, len(seen.Holders), n, step.queue)
			}
		}
		time.Sleep(queueEnd - time.Since(m.begun))
		m.mu.Lock()
		got := slices.Clone(m.all)
		m.mu.Unlock()
		want := slices.Clone(queueScene)
		for i := range want {
			want[i].queue = ""
		}
		if !slices.Equal(got, want) {
			t.Errorf("messages %v, the picture has %v", got, want)
		}
		cancel()
		ended.Wait()
		for _, c := range append(clients, operator) {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
