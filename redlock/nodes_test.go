package redlock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestF44_DependentNodesAreRefused checks that nodes that are not an odd number
// of independent stores are refused.
func TestF44_DependentNodesAreRefused(t *testing.T) {
	s := memlock.NewStore()
	node := func() driver.Driver { return memlock.New(memlock.NewStore()) }
	for want, nodes := range map[string][]driver.Driver{
		"0 nodes":             nil,
		"1 nodes":             {node()},
		"2 nodes":             {node(), node()},
		"4 nodes":             {node(), node(), node(), node()},
		"node 2 is nil":       {node(), nil, node()},
		"nodes 1 and 3 are":   {memlock.New(s), node(), memlock.New(s)},
		"no fencing tokens":   {node(), node(), traitless{node(), driver.Traits{}}},
		"node 1 is a cluster": {traitless{node(), driver.Traits{Fencing: true, Lane: func(string) uint64 { return 0 }}}, node(), node()},
	} {
		d, err := New(nodes, nil)
		if err == nil {
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

type traitless struct {
	driver.Driver
	tr driver.Traits
}

func (d traitless) Traits() driver.Traits { return d.tr }

// TestF44_DuplicateNodeIsKeptOut checks that a node that comes back with the
// identity of another node is kept out.
func TestF44_DuplicateNodeIsKeptOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		nodes := w.drivers()
		opened := 0
		nodes[2] = Later(nodes[0].Traits(), func(context.Context) (driver.Driver, error) {
			if opened++; opened < 4 {
				return nil, fmt.Errorf("no server")
			}
			return memlock.New(w.nodes[0].Store), nil
		})
		d, err := New(nodes, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := clientOf(t, d, ttl)
		time.Sleep(time.Minute)
		if d.nodes.all[2].duplicate.Load() == nil || d.nodes.all[2].usable() {
			t.Error("the same store twice is not noticed")
		}
		h, err := c.Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		fs, err := d.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := false
		for _, f := range fs {
			told = told || f.Level == driver.Problem && strings.Contains(f.Detail, "one and the same")
		}
		if !told {
			t.Errorf("Check does not tell: %+v", fs)
		}
	})
}
