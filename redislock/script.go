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

// A script is the text of one request. Several are made of parts, because the
// steps that they share come after a first half which settles the common case
// without defining any of them.
type script struct{ text, sha string }

//go:embed lua/*.lua
var lua embed.FS

var (
	joinScript    = newScript("grant", "line", "turns", "join")
	renewScript   = newScript("renew", "line", "turns", "renew_any")
	leaveScript   = newScript("release", "line", "turns", "leave")
	breakScript   = newScript("call", "line", "turns", "break")
	inspectScript = newScript("call", "line", "turns", "inspect")
)

// scripts are those of one way of telling who waits.
type scripts struct{ join, renew, leave, take, inspect *script }

var (
	// plainScripts publish to all who listen at the server.
	plainScripts = &scripts{joinScript, renewScript, leaveScript, breakScript, inspectScript}
	// shardScripts publish in the line's slot of a cluster.
	shardScripts = sync.OnceValue(func() *scripts {
		shard := func(s *script) *script {
			return namedScript(strings.ReplaceAll(s.text, "redis.pcall('PUBLISH', ", "redis.pcall('SPUBLISH', "))
		}
		p := plainScripts
		return &scripts{shard(p.join), shard(p.renew), shard(p.leave), shard(p.take), shard(p.inspect)}
	})
)

func newScript(parts ...string) *script {
	var b strings.Builder
	for _, part := range parts {
		text, err := lua.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // the parts are embedded with the program
		}
		b.Write(text)
	}
	return namedScript(b.String())
}

func namedScript(text string) *script {
	s := &script{text: text}
	sum := sha1.Sum([]byte(s.text)) // Redis names scripts so; nothing secret depends on it
	s.sha = hex.EncodeToString(sum[:])
	return s
}

// command runs the script about a line: by its name, or in full, which also
// makes the server remember it.
func (s *script) command(b rueidis.Builder, full bool, l *line, args ...string) rueidis.Completed {
	verb, text := "EVALSHA", s.sha
	if full {
		verb, text = "EVAL", s.text
	}
	if l.none != "" {
		return b.Arbitrary(verb, text, numKeysMore).Keys(l.keys[:]...).Keys(l.none).Args(args...).Build()
	}
	return b.Arbitrary(verb, text, numKeysText).Keys(l.keys[:]...).Args(args...).Build()
}

// words are the same command, as a list.
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

// all returns the keys of a line as a script is given them.
func (l *line) all() []string {
	if l.none == "" {
		return l.keys[:]
	}
	return append(l.keys[:len(l.keys):len(l.keys)], l.none)
}

// noScript says whether the server did not know a script by its name: it was
// restarted, told to forget its scripts, or never saw this one.
func noScript(err error) bool {
	if se, ok := errors.AsType[link.ServerError](err); ok {
		return strings.HasPrefix(string(se), "NOSCRIPT")
	}
	re, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && re.IsNoScript()
}
