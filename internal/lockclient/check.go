package lockclient

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Check examines each server: whether it answers and can serve, and what this client may
// do there. The store itself is examined where the servers run.
func (d *Driver) Check(ctx context.Context) ([]driver.Finding, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	var out []driver.Finding
	var last error
	served := 0
	for at := range d.servers.bases {
		limit := driver.OpenLimit
		try, cancel := context.WithTimeout(ctx, limit)
		findings, err := d.checkServer(try, at)
		cancel()
		if ctx.Err() != nil {
			return nil, driver.Wrap(driver.NotDone, context.Cause(ctx))
		}
		if err != nil {
			last = err
			findings = []driver.Finding{{Topic: d.topic(at), Level: driver.Warning, Detail: err.Error(), Advice: "start it again, or take it out of the URL: the others serve"}}
			if driver.ClassOf(err) == driver.Refused {
				findings[0].Level, findings[0].Advice = driver.Problem, "name servers of one store, and a token that they know"
			}
		} else {
			served++
		}
		out = append(out, findings...)
	}
	if served == 0 {
		return nil, last
	}
	if len(d.servers.bases) == 1 {
		out = append(out, driver.Finding{Topic: "servers", Level: driver.OK, Detail: "one; a second one over the same store would keep holds alive while this one is away"})
	}
	return append(out, driver.Finding{Topic: "store", Level: driver.OK, Detail: "the servers' own: holdfast doctor examines it where they run"}), nil
}

func (d *Driver) topic(at int) string { return "server " + d.servers.names[at] }

func (d *Driver) checkServer(ctx context.Context, at int) ([]driver.Finding, error) {
	begun := time.Now()
	a, err := d.servers.askAt(ctx, at, http.MethodGet, "/v1/server", nil)
	took := time.Since(begun)
	if err == nil && a.status != http.StatusOK {
		err = a.problem(a.status, a.after)
	}
	if err != nil {
		return nil, err
	}
	found := []driver.Finding{{Topic: d.topic(at), Detail: fmt.Sprintf("%s of group %s, version %s, answers in %v", a.Server, a.Group, a.Version, took.Round(100*time.Microsecond))}}
	add := func(l driver.Level, detail, advice string) {
		found = append(found, driver.Finding{Topic: d.topic(at), Level: l, Detail: detail, Advice: advice})
	}
	ready, err := d.servers.askAt(ctx, at, http.MethodGet, "/readyz", nil)
	switch {
	case err != nil:
		return nil, err
	case a.Draining:
		add(driver.Warning, "it is about to end, and takes no new locks", "ask another one, or start it again")
	case ready.status != http.StatusOK:
		add(driver.Problem, "it is not ready: its store does not answer it", "run holdfast doctor for the store, on its machine")
	}
	if !a.Traits.Owner {
		add(driver.Warning, "its store has no named owners, so each hold ends with the server", "take another store where servers may be restarted")
	}
	may := slices.IndexFunc(a.Rights, func(r right) bool { return slices.Contains(r.May, "lock") })
	bounded := slices.ContainsFunc(a.Rights, func(r right) bool { return r.MaxHold > 0 })
	switch {
	case may < 0:
		add(driver.Problem, fmt.Sprintf("%s may lock nothing", a.Principal), "give it a prefix with the right to lock, in the server's file of --auth")
	case bounded:
		add(driver.Warning, fmt.Sprintf("%s may not hold for longer than its rights say (max_hold_ms)", a.Principal), "")
	default:
		add(driver.OK, "this client is "+a.Principal, "")
	}
	return found, nil
}
