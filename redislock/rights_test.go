package redislock

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// as makes a user with these rights and opens a driver for that user.
func as(t *testing.T, s *servers.RedisServer, user string, rules ...string) *Driver {
	t.Helper()
	s.Do(t, append([]string{"ACL", "SETUSER", user, "reset", "on", ">pass word/1", "resetchannels", "+hello"}, rules...)...)
	return openAt(t, Open, fmt.Sprintf("redis://%s:%s@%s", user, url.PathEscape("pass word/1"), s.Addr()))
}

// joinAlone sends the request of a Join, and leaves nothing after a refusal.
func joinAlone(m *member, d *Driver, t *driver.Ticket) error {
	var requests wire.Requests
	requests.Init(DefaultPrefix, d.server.Channel, false, plainScripts)
	join := requests.Join(t, true, false).Run()
	_, err := d.server.Do(m.ctx(), join.Words(true)...)
	return err
}

// TestDocumentedRightsAreEnoughAndNeeded checks that a user with exactly the documented rights can do
// everything, and that each of these rights is needed.
func TestDocumentedRightsAreEnoughAndNeeded(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	rules := documentedRights(t, "", DefaultPrefix)
	m := listen(t, as(t, s, "minimal", rules...))
	other := listen(t, as(t, s, "minimal", rules...))
	everything(t, s, m, other)
	lines := 0
	m.take(m.ticket("listed"), driver.Held)
	s.Do(t, "ACL", "SETUSER", "minimal", "+ping", "+scan", "+client|info", "+config|get")
	for name, err := range m.Names(m.ctx(), "") {
		if lines++; err != nil || name != "listed" {
			t.Errorf("Names: %q, %v", name, err)
		}
	}
	if lines != 1 {
		t.Errorf("%d names", lines)
	}
	if _, err := m.Identity(m.ctx()); err != nil {
		t.Errorf("Identity: %v", err)
	}
	fs, err := m.Check(m.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		if f.Level == driver.Problem {
			t.Errorf("Check: %+v", f)
		}
	}
	// An entry of the server's log is a missing right that the driver did not
	// report.
	if log := s.Do(t, "ACL", "LOG").([]any); len(log) > 0 {
		t.Errorf("the server refused %v", log)
	}

	// Without one of these rights, some request is refused with the right
	// error.
	command := regexp.MustCompile(`^\+[a-z]+$`)
	for _, rule := range rules {
		if !command.MatchString(rule) || rule == "+ping" { // sent only after a second of silence
			continue
		}
		s.Do(t, "ACL", "LOG", "RESET")
		less := slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })
		if n := len(refusals(t, s, less)); n == 0 {
			t.Errorf("%s is documented, and everything works without it", rule)
		}
	}
}

// everything uses every command that the scripts and the driver have.
func everything(t *testing.T, s *servers.RedisServer, a, b *member) {
	t.Helper()
	for _, k := range all(s, a, b, "all/"+a.uuid) {
		if err := k(); err != nil {
			t.Error(err)
		}
	}
}

// all returns requests that together use every command.
func all(s *servers.RedisServer, a, b *member, name string) (steps []func() error) {
	ctx := a.ctx()
	add := func(what string, f func() error) {
		steps = append(steps, func() error {
			if err := f(); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	take := func(m *member, k *driver.Ticket) {
		add("join", func() error { _, err := m.Join(ctx, k, true); return err })
		add("renew", func() error { return first(m.Renew(ctx, []driver.Ref{ref(k)})) })
	}
	leave := func(m *member, k *driver.Ticket, unsure bool) {
		add("leave", func() error {
			return first(m.Leave(ctx, []driver.Ref{{Ticket: k, State: driver.Held, JoinPending: unsure}}))
		})
	}
	for i, limit := range []int64{1, 4} {
		var ks []*driver.Ticket
		for j := range 4 {
			m := []*member{a, b}[j%2]
			k := m.ticket(fmt.Sprint(name, i))
			k.Limit, k.Units = limit, limit
			if j > 1 {
				k.Owner = "owner"
			}
			ks = append(ks, k)
			take(m, k)
		}
		add("inspect", func() error { _, err := a.Inspect(ctx, ks[0].Name); return err })
		try := a.ticket(ks[0].Name)
		try.Limit = limit
		add("try", func() error { _, err := a.Join(ctx, try, false); return err })
		gone := a.ticket(ks[0].Name)
		gone.Limit = limit
		take(a, gone)
		leave(a, gone, false)
		add("an old tombstone", func() error {
			_, err := s.Try("ZADD", keysOf(ks[0].Name)[wire.KeyDue], "1", "\x03x")
			return err
		})
		leave(a, ks[0], false)
		leave(b, ks[1], true)
		add("break", func() error { return a.Break(ctx, ks[2].Name, ks[2].ID) })
		leave(b, ks[3], false)
	}
	return steps
}

// refusals uses every command as a user with these rights, and returns the
// refusals. An error of another class fails the test.
func refusals(t *testing.T, s *servers.RedisServer, rules []string) (errs []error) {
	t.Helper()
	s.Do(t, "SCRIPT", "FLUSH")
	d := as(t, s, "less", rules...)
	d2 := as(t, s, "less", rules...)
	defer d.Close()
	defer d2.Close()
	a, b := quiet(t, d), quiet(t, d2)
	for _, m := range []*member{a, b} {
		if err := m.Watch(m.ctx(), func(string, driver.Status) {}); err != nil {
			errs = append(errs, err)
		}
	}
	for _, step := range all(s, a, b, "less/"+a.uuid) {
		if err := step(); err != nil {
			errs = append(errs, err)
		}
	}
	denied := s.Do(t, "ACL", "LOG").([]any)
	for _, err := range errs {
		if cl := driver.ClassOf(err); cl != driver.Refused && cl != driver.NotDone {
			t.Errorf("with %q: class %v: %v", rules, cl, err)
		}
	}
	if len(denied) > 0 && len(errs) == 0 {
		// PUBLISH: without pushes, a waiter polls. The check reports that.
		errs = append(errs, fmt.Errorf("refused: %v", denied))
	}
	return errs
}

// TestF114_RefusedJoinLeavesNothingForEver checks that the script of a Join which
// lacks a right leaves nothing that never expires. The Leave that the driver sends
// after it is no help where the process ends before.
//
// Covers: F114 on redis.
func TestF114_RefusedJoinLeavesNothingForEver(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	rules := documentedRights(t, "", DefaultPrefix)
	other := quiet(t, openOn(t, s, ""))
	kinds := map[string]driver.Ticket{
		"mutex": {Units: 1, Limit: 1}, "owner": {Units: 1, Limit: 1, Owner: "o"},
		"reader": {Units: 1, Limit: driver.RWLimit}, "permits": {Units: 2, Limit: 3},
	}
	refused := 0
	for _, rule := range rules {
		if !strings.HasPrefix(rule, "+") {
			continue
		}
		d := as(t, s, "less", slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == rule })...)
		m := quiet(t, d)
		for kind, k := range kinds {
			for _, busy := range []bool{false, true} {
				name := fmt.Sprint(rule, " ", kind, " ", busy)
				if busy {
					holder := other.ticket(name)
					holder.Units, holder.Limit = k.Limit, k.Limit
					other.take(holder, driver.Held)
				}
				next := m.ticket(name)
				next.Units, next.Limit, next.Owner = k.Units, k.Limit, k.Owner
				if joinAlone(m, d, next) != nil {
					refused++
				}
			}
		}
	}
	if refused == 0 {
		t.Error("no Join was refused")
	}
	for _, key := range s.Do(t, "KEYS", DefaultPrefix+"*").([]any) {
		if left := s.Do(t, "PTTL", key.(string)); left == int64(-1) {
			t.Errorf("%s never expires", key)
		}
	}
}

// TestCheckExaminesTheKeyOfMarks checks that Check tells a user who may use the keys
// of queues but may not read, or not write, those of marks, which Once needs.
func TestCheckExaminesTheKeyOfMarks(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	rules := slices.DeleteFunc(documentedRights(t, "", DefaultPrefix), func(r string) bool { return r == "~holdfast_*" })
	for _, name := range []string{"queue", "tickets", "due", "mark", "ahead", "none", "guard"} {
		rules = append(rules, "~holdfast_"+name+"*")
	}
	for user, more := range map[string]string{"whole": "~holdfast_done*", "none": "", "reads": "%R~holdfast_done*", "writes": "%W~holdfast_done*"} {
		if more != "" {
			more = " " + more
		}
		d := as(t, s, user, strings.Fields(strings.Join(rules, " ")+more+" +config|get +scan +client|info")...)
		_, err := d.Mark(t.Context(), "n")
		if err == nil {
			err = d.SetMark(t.Context(), "n", driver.Mark{Token: 1})
		}
		fs, checked := d.Check(t.Context())
		if checked != nil {
			t.Fatal(checked)
		}
		told := slices.ContainsFunc(fs, func(f driver.Finding) bool {
			return f.Topic == "rights" && f.Level == driver.Problem && strings.Contains(f.Advice, "~holdfast_*")
		})
		if refused := err != nil; refused != (user != "whole") || told != refused {
			t.Errorf("%s: the marks: %v; Check: %+v", user, err, fs)
		}
	}
}
