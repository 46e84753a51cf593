// Package redisfence refuses old tokens in Redis and Valkey: a few lines of Lua
// that stand before a script of yours, so that the check and the write are one
// step.
//
// It has no client of its own. Script returns the text, Keys and Args what goes
// with it, for the EVAL of whatever client you use, and Err reads the answer. It
// needs what EVAL needs, Redis 6.2 or newer.
//
// The guard is a hash at a key that you name, with the fields token and owner.
// It has no expiry: a guard that is gone lets an old token pass. For the same
// reason the server must not evict it (maxmemory-policy noeviction, or one of
// the volatile ones), and what it has acknowledged must survive a crash of it as
// well as the data do that it guards.
package redisfence

import (
	_ "embed"
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/fence"
)

//go:embed fence.lua
var guard string

// Script returns the text of a script that first checks the token, and then
// runs body: a script of yours that reads KEYS and ARGV as always, writes, and
// returns what it likes. When the token is refused, body does not run. Names
// that begin with "fence" are taken.
//
// The text is always the same for the same body, so that the server can keep it
// by its digest. What varies belongs into keys and arguments, never into body.
func Script(body string) string { return guard + body }

// Key returns a key for the guard of the data at key, in the same slot of a
// Redis Cluster. Any other key will do as well, if all who write use it.
func Key(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return "holdfast_fence:" + key // the tag names the slot
		}
	}
	if strings.ContainsAny(key, "{}") {
		// A brace in a tag cannot be written. Without a tag, the slot would be
		// another one.
		return "holdfast_fence:" + key
	}
	return "holdfast_fence:{" + key + "}"
}

// Keys returns the keys to send: those of your body, and behind them the
// guard's.
func Keys(guard string, keys ...string) []string {
	return append(keys[:len(keys):len(keys)], guard)
}

// Args returns the arguments to send: those of your body, and behind them the
// token's. A token of zero is fence.ErrNoToken, without asking the server.
func Args(t fence.Token, args ...string) ([]string, error) {
	if err := fence.Admit(fence.Token{}, t); err != nil {
		return nil, err
	}
	shared := "0"
	if t.Shared {
		shared = "1"
	}
	return append(args[:len(args):len(args)], strconv.FormatUint(t.Value, 10), t.Owner, shared), nil
}

// Err returns the error of a call of such a script as what it is: a
// *fence.StaleError for t when the server has refused the token, otherwise err
// itself. It knows the refusal by its text, which begins with FENCED whatever
// the client is.
func Err(err error, t fence.Token) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(e.Error(), "ERR "), "FENCED ")
		if !ok {
			continue
		}
		number, owner, _ := strings.Cut(rest, " ")
		highest, bad := strconv.ParseUint(number, 10, 64)
		if bad != nil {
			return err
		}
		return &fence.StaleError{Given: t, Highest: fence.Token{Value: highest, Owner: owner}}
	}
	return err
}
