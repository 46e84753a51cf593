package redlock

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Identity implements [driver.Identifier]: it joins the identities of all
// nodes. All of them must have answered once.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.nodes.checkOpen(ctx); err != nil {
		return "", err
	}
	var all []string
	for i, n := range d.nodes.all {
		identity := n.identity.Load()
		if identity == nil {
			return "", driver.Errorf(driver.Unavailable, "node %d has not answered yet", i+1)
		}
		all = append(all, *identity)
	}
	slices.Sort(all)
	return "redlock:" + strings.Join(all, " "), nil
}

// Check implements [driver.Checker]: it reports which nodes take part, and the
// findings of nodes that can examine themselves.
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	got, err := each(ctx, d.nodes, func(ctx context.Context, n *node) ([]driver.Finding, error) {
		if c, ok := n.d.(driver.Checker); ok {
			return c.Check(ctx)
		}
		_, err := n.d.Inspect(ctx, "holdfast")
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	f := driver.Finding{Topic: "nodes", Detail: fmt.Sprintf("%d of %d take part", len(got), len(d.nodes.all))}
	if len(got) < len(d.nodes.all) {
		f.Level = driver.Warning
		f.Detail += fmt.Sprintf("; locks work as long as %d do", d.nodes.quorum)
		f.Advice = "bring the others back: with each missing node, locks survive one failure less"
	}
	fs := []driver.Finding{f}
	for i, n := range d.nodes.all {
		if duplicate := n.duplicate.Load(); duplicate != nil {
			fs = append(fs, driver.Finding{Topic: fmt.Sprintf("node %d", i+1), Level: driver.Problem, Detail: (*duplicate).Error(), Advice: "give each node a server of its own"})
		}
		for _, one := range got[i] {
			one.Topic = fmt.Sprintf("node %d: %s", i+1, one.Topic)
			fs = append(fs, one)
		}
	}
	return fs, nil
}
