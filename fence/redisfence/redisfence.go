// Package redisfence refuses old tokens in Redis and Valkey: a few lines of Lua
// precede a script of yours, so that the check and the write are one step.
//
// The package has no client of its own. Script returns the text of the script,
// and Keys and Args return its keys and arguments, for EVAL with any client.
// Err reads the answer. The server must have EVAL, and be Redis 6.2 or newer.
//
// The guard is a hash at a key that you name, with the fields token and owner.
// It has no expiry, because a lost guard lets an old token pass. For the same
// reason the server must not evict it (maxmemory-policy noeviction, or one of
// the volatile ones), and its acknowledged writes must survive a crash as well
// as the guarded data do.
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
// runs body: a script of yours that reads KEYS and ARGV as usual, writes, and
// returns any value. If the token is refused, body does not run. Names that
// begin with "fence" are reserved.
//
// The text is always the same for the same body, so that the server can cache
// it by its digest. Pass variable values as keys and arguments, never in body.
func Script(body string) string { return guard + body }

// Key returns a key for the guard of the data at key, in the same slot of a
// Redis Cluster. It cannot do so for a key that is empty, or that has a brace
// but no tag: that guard is in a slot of its own. Any other key serves as well,
// if all writers use the same one.
func Key(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return "holdfast_fence:" + key // key has a tag, which determines the slot
		}
	}
	if strings.ContainsAny(key, "{}") {
		// A tag cannot contain a brace, so the guard is in a slot of its own.
		return "holdfast_fence:" + key
	}
	return "holdfast_fence:{" + key + "}"
}

// Keys returns the keys to send: those of your body, followed by the guard's.
func Keys(guard string, keys ...string) []string {
	return append(keys[:len(keys):len(keys)], guard)
}

// Args returns the arguments to send: those of your body, followed by the
// token's. For a token of zero it returns fence.ErrNoToken, without asking the
// server.
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

// Err translates the error of such a script: it returns a *fence.StaleError for
// t if the server has refused the token, otherwise err itself. It recognises
// the refusal by its text, which begins with FENCED for every client.
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
