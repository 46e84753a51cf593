package redislock

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// A script is the text of one request. Several scripts are made of parts:
// their common steps come after a first half, which handles the usual case
// without defining any of those steps.
type script struct{ text, sha string }

//go:embed lua/*.lua
var lua embed.FS

var (
	joinScript    = newScript("grant", "queue", "grants", "join")
	renewScript   = newScript("renew", "queue", "grants", "renew_any")
	leaveScript   = newScript("release", "queue", "grants", "leave")
	breakScript   = newScript("call", "queue", "grants", "break")
	inspectScript = newScript("call", "queue", "grants", "inspect")
)

// scripts is the set of scripts for one way of publishing pushes.
type scripts struct{ join, renew, leave, remove, inspect *script }

var (
	// plainScripts publish to all who listen at the server.
	plainScripts = &scripts{joinScript, renewScript, leaveScript, breakScript, inspectScript}
	// shardScripts returns the scripts that publish in the queue's slot of a
	// cluster.
	shardScripts = sync.OnceValue(func() *scripts {
		shard := func(s *script) *script {
			return namedScript(strings.ReplaceAll(s.text, "redis.pcall('PUBLISH', ", "redis.pcall('SPUBLISH', "))
		}
		p := plainScripts
		return &scripts{shard(p.join), shard(p.renew), shard(p.leave), shard(p.remove), shard(p.inspect)}
	})
)

func newScript(files ...string) *script {
	var b strings.Builder
	for _, file := range files {
		text, err := lua.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the parts are embedded with the program
		}
		b.Write(text)
	}
	return namedScript(b.String())
}

func namedScript(text string) *script {
	s := &script{text: text}
	sum := sha1.Sum([]byte(s.text)) // Redis names scripts by SHA-1; nothing secret depends on it
	s.sha = hex.EncodeToString(sum[:])
	return s
}

// command runs the script on a queue: by its name, or in full, which also
// makes the server remember the script.
func (s *script) command(b rueidis.Builder, full bool, l *queueKeys, args ...string) rueidis.Completed {
	verb, text := "EVALSHA", s.sha
	if full {
		verb, text = "EVAL", s.text
	}
	if l.none != "" {
		return b.Arbitrary(verb, text, numKeysMore).Keys(l.keys[:]...).Keys(l.none).Args(args...).Build()
	}
	return b.Arbitrary(verb, text, numKeysText).Keys(l.keys[:]...).Args(args...).Build()
}

// words returns the same command as a list.
func (s *script) words(full bool, keys, args []string) []string {
	w := make([]string, 0, 3+len(keys)+len(args))
	if full {
		w = append(w, "EVAL", s.text)
	} else {
		w = append(w, "EVALSHA", s.sha)
	}
	w = append(w, strconv.Itoa(len(keys)))
	return append(append(w, keys...), args...)
}

// all returns the keys of a queue in the order of KEYS.
func (l *queueKeys) all() []string {
	if l.none == "" {
		return l.keys[:]
	}
	return append(l.keys[:len(l.keys):len(l.keys)], l.none)
}

// noScript reports whether the server did not know a script by its name: it
// was restarted, was ordered to forget its scripts, or never saw this one.
func noScript(err error) bool {
	if se, ok := errors.AsType[link.ServerError](err); ok {
		return strings.HasPrefix(string(se), "NOSCRIPT")
	}
	re, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && re.IsNoScript()
}
