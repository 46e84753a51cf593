package server

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// rights is the list of commands that the scripts and the driver use, each
// with words that have no effect: k stands for a key that never exists, q and
// t for two keys of a queue of the check's own. All commands are tried,
// because a script that is refused one of them does not name it. redislock/docs.go lists
// them for people.
var rights = []struct{ rule, words string }{
	{"+evalsha", "0000000000000000000000000000000000000000 1 k"}, {"+eval", "return(1) 1 k"}, {"+time", ""}, {"+info", "server"},
	{"+exists", "k"}, {"+pexpire", "k 1"}, {"+pttl", "k"}, {"+get", "k"}, {"+set", "k x XX"},
	{"+hlen", "k"}, {"+hget", "k x"}, {"+hmget", "k x"}, {"+hgetall", "k"}, {"+hset", "t x x"}, {"+hdel", "t x"},
	{"+hexists", "k x"}, {"+hrandfield", "k 1"},
	{"+rpush", "q x"}, {"+lpop", "q"}, {"+lrem", "k 1 x"}, {"+lindex", "k 0"}, {"+lrange", "k 0 0"}, {"+lpos", "k x"},
	{"+zadd", "k XX 0 x"}, {"+zrem", "k x"}, {"+zrange", "k 0 0"}, {"+zrangebyscore", "k 0 0"}, {"+zscore", "k x"}, {"+del", "q t"},
}

// missingRights returns the rights that the user does not have, as ACL SETUSER
// takes them.
func (t *trial) missingRights(ctx context.Context, d *Driver) ([]string, error) {
	return onControl(ctx, d, func(c client.Conn) (rules []string, err error) {
		stands := map[string]string{"k": wire.NoneName + wire.InSlot(t.Keys[wire.KeyHolders]), "q": t.Keys[wire.KeyWaiters], "t": t.Keys[wire.KeyTickets]}
		mark := t.MarkKey()
		add := func(rule string) {
			if rule != "" && !slices.Contains(rules, rule) {
				rules = append(rules, rule)
			}
		}
		ask := func(words ...string) (missing string, err error) {
			if _, err = c.Do(words...); Broken(err) {
				return "", err
			}
			return wire.DeniedOf(err), nil
		}
		for _, at := range []struct{ key, rule string }{{t.Keys[wire.KeyHolders], "~" + d.requests.Prefix + "*"}, {stands["k"], "~" + wire.Reserved + "*"}} {
			missing, err := ask("EXISTS", at.key)
			if err != nil {
				return nil, err
			}
			if missing == wire.AnyKey {
				add(at.rule)
			}
		}
		// Since Redis 7, a key may be left to be read or written alone. PEXPIRE of a
		// missing key changes nothing.
		for _, words := range [][]string{{"HGET", mark, "token"}, {"PEXPIRE", mark, "1"}} {
			missing, err := ask(words...)
			if err != nil {
				return nil, err
			}
			if missing == wire.AnyKey {
				add("~" + wire.Reserved + "*")
			}
		}
		publish := []string{"PUBLISH", d.Channel + "-check", ""}
		if d.requests.Sharded {
			publish = []string{"SPUBLISH", wire.ChannelOf(d.Channel, t.Slot), ""}
		}
		if !d.Polls.Load() {
			missing, err := ask(publish...)
			switch {
			case err != nil:
				return nil, err
			case missing == wire.AnyChannel:
				add("&holdfast_push:*")
			case missing != "":
				add("+" + strings.ToLower(publish[0]))
			}
		}
		for _, r := range rights {
			words := append([]string{r.rule[1:]}, strings.Fields(r.words)...)
			for i, w := range words {
				if key, ok := stands[w]; ok && i > 0 {
					words[i] = key
				}
			}
			missing, err := ask(words...)
			if err != nil {
				return nil, err
			}
			if missing != "" && missing != wire.AnyKey {
				add(r.rule)
			}
		}
		return rules, nil
	})
}

// CheckRights adds the rights that the user lacks to the finding.
func (t *trial) CheckRights(ctx context.Context, d *Driver) error {
	rules, err := t.missingRights(ctx, d)
	if err != nil || len(rules) == 0 {
		return err
	}
	if t.rights.Level == driver.OK {
		t.rights.Detail = "some requests are refused"
	}
	t.rights.Level = driver.Problem
	t.rights.Advice = "give the user the missing rights: ACL SETUSER ... " + strings.Join(rules, " ")
	return nil
}
