// Package redisrights describes users of Redis servers, with the rights that
// package redislock documents or without one of them, to the suite of drivers.
package redisrights

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

const password = "pass word/1"

// Documented reads the rules of a user out of the part "# Rights"+where of the
// documentation in a file, for lines with a prefix.
func Documented(t *testing.T, file, where, prefix string) (rules []string) {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(src), "# Rights"+where+"\n")
	if !ok {
		t.Fatal(file + " has no part about rights" + where)
	}
	text, _, _ = strings.Cut(text, "\n// # ")
	for line := range strings.Lines(text) {
		if rule, ok := strings.CutPrefix(line, "//\t"); ok {
			rules = append(rules, strings.Fields(strings.ReplaceAll(rule, "PREFIX", prefix))...)
		}
	}
	if len(rules) < 3 {
		t.Fatalf("the documentation lists %q", rules)
	}
	return rules
}

// Users describes users with these rules. A user is made on all servers, and open
// opens its clients by its name and password.
func Users(t *testing.T, rules []string, servers []*servers.RedisServer, open func(user *url.Userinfo) (driver.Driver, error)) *drivertest.Rights {
	needed := slices.DeleteFunc(slices.Clone(rules), func(rule string) bool {
		return rule == "+ping" || rule == "+asking" // for silence, and for slots on the move
	})
	var users atomic.Int64
	set := func(user string, rules ...string) {
		for _, s := range servers {
			s.Do(t, append([]string{"ACL", "SETUSER", user}, rules...)...)
		}
	}
	return &drivertest.Rights{
		Needed: needed,
		User: func(_ drivertest.T, without ...string) drivertest.User {
			user := fmt.Sprint("user", users.Add(1))
			less := func(rule string) bool { return slices.Contains(without, rule) }
			set(user, append([]string{"reset", "on", ">" + password, "resetchannels", "+hello", "+select", "+ping", "+asking", "+acl|whoami"}, slices.DeleteFunc(slices.Clone(needed), less)...)...)
			return drivertest.User{
				Open: func(drivertest.T) (driver.Driver, error) { return open(url.UserPassword(user, password)) },
				Revoke: func(_ drivertest.T, right string) {
					if command, ok := strings.CutPrefix(right, "+"); ok {
						set(user, "-"+command)
						return
					}
					rules := []string{"resetkeys"}
					if right[0] == '&' {
						rules = []string{"resetchannels"}
					}
					for _, rule := range needed {
						if rule[0] == right[0] && rule != right {
							rules = append(rules, rule)
						}
					}
					set(user, rules...)
				},
			}
		},
		Unexpiring: func(drivertest.T) (keys []string) {
			for _, s := range servers {
				if s.Info(t, "replication", "role") != "master" {
					continue
				}
				for _, key := range s.Do(t, "KEYS", "*").([]any) {
					if key := key.(string); !stays(key) && s.Do(t, "PTTL", key) == int64(-1) {
						keys = append(keys, key)
					}
				}
			}
			return keys
		},
	}
}

// stays says whether a key is one of the few that never end.
func stays(key string) bool {
	return slices.ContainsFunc([]string{"holdfast_guard", "holdfast_mark", "holdfast_ahead"}, func(name string) bool { return strings.HasPrefix(key, name) })
}
