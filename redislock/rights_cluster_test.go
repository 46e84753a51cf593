package redislock

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestClusterRights checks that in a cluster a user with exactly the
// documented rights can do everything, also while a replica is promoted, and
// that each right which only a cluster needs is needed.
func TestClusterRights(t *testing.T) {
	t.Parallel()
	c := servers.RedisClusterOf(t, servers.RedisClusterOptions{NodeTimeout: time.Minute, NoReplicas: true})
	rules := documentedRights(t, " in a cluster", DefaultPrefix)
	needed := []string{"+spublish", "+ssubscribe", "+cluster|slots", "+info"}
	if !wire.AtLeast(c.Nodes[0].Info(t, "server", "redis_version"), 7, 0) { // older versions have no such rights
		lacks := func(rule string) bool { return rule == "+spublish" || rule == "+ssubscribe" }
		rules, needed = slices.DeleteFunc(rules, lacks), slices.DeleteFunc(needed, lacks)
	}
	as := func(user string, rules []string) (*Cluster, error) {
		for _, s := range c.Nodes {
			s.Do(t, append([]string{"ACL", "SETUSER", user, "reset", "on", ">pw", "resetchannels", "+hello"}, rules...)...)
		}
		return OpenCluster(t.Context(), strings.Replace(c.URL(""), "://", "://"+user+":pw@", 1))
	}
	denied := func() (log []any) {
		for _, s := range c.Nodes {
			log = append(log, s.Do(t, "ACL", "LOG").([]any)...)
			s.Do(t, "ACL", "LOG", "RESET")
		}
		return log
	}
	enter := func(user string, rules []string) (*member, error) {
		d, err := as(user, rules)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { d.Close() })
		return listen(t, d), nil
	}
	a, b := must(enter("minimal", rules)), must(enter("minimal", rules))
	const name = "all{x}"
	for _, step := range all(c.Primary(t, slotOf(name)), a, b, name) {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	held, waits := a.ticket("n"), b.ticket("n")
	a.take(held, driver.Held)
	b.take(waits, driver.Waiting)
	a.leaves(held, driver.Held)
	b.granted(waits)
	b.leaves(waits, driver.Held)
	for _, s := range c.Nodes {
		s.Do(t, "ACL", "SETUSER", "minimal", "+ping", "+scan", "+client|info", "+config|get")
	}
	for _, err := range a.Names(a.ctx(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Identity(a.ctx()); err != nil {
		t.Error(err)
	}
	for topic, f := range findings(t, a) {
		if f.Level == driver.Problem {
			t.Errorf("Check: %s: %+v", topic, f)
		}
	}
	if log := denied(); len(log) > 0 {
		t.Errorf("the nodes refused %v", log)
	}

	for i, rule := range needed {
		if !slices.Contains(rules, rule) {
			t.Errorf("%s is not documented", rule)
		}
		less := slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
		name := fmt.Sprint("without", i)
		a, err := enter(name, less)
		if err == nil {
			k, w := a.ticket(name), a.ticket(name)
			a.take(k, driver.Held)
			begun := time.Now()
			if a.take(w, driver.Waiting); rule == "+ssubscribe" && time.Since(begun) > 2*time.Second {
				t.Errorf("a place without pushes took %v", time.Since(begun))
			}
			a.leaves(k, driver.Held)
			a.keeps(w, driver.Held) // a waiter without pushes polls
			a.leaves(w, driver.Held)
		}
		if log := denied(); len(log) == 0 {
			t.Errorf("%s is documented, and everything works without it", rule)
		}
	}
}

// TestSentinelRights checks the same for a user at the Sentinels, and for one
// at the server behind them.
func TestSentinelRights(t *testing.T) {
	t.Parallel()
	s := servers.RedisSentinelsOf(t, servers.RedisSentinelOptions{DownAfter: 600_000})
	for _, n := range s.Nodes {
		n.Do(t, append([]string{"ACL", "SETUSER", "minimal", "on", ">pw", "resetchannels", "+hello", "+wait"}, documentedRights(t, "", DefaultPrefix)...)...)
	}
	for _, n := range s.Sentinels {
		n.Do(t, append([]string{"ACL", "SETUSER", "guided", "on", ">pw", "resetchannels", "+hello"}, documentedRights(t, " at a Sentinel", "")...)...)
	}
	open := func() *member {
		query := "min_replicas=1&sentinel_user=guided&sentinel_password=pw"
		return listen(t, openAt(t, OpenSentinel, strings.Replace(s.URL(query), "://", "://minimal:pw@", 1)))
	}
	a, b := open(), open()
	for _, step := range all(s.Nodes[0], a, b, "n") {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	for _, n := range append(s.Sentinels, s.Nodes...) {
		if log := n.Do(t, "ACL", "LOG").([]any); len(log) > 0 {
			t.Errorf("refused: %v", log)
		}
	}
}
