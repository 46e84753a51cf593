package redislock

import (
	"embed"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

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
type scripts struct{ join, renew, leave, remove, inspect *wire.Script }

var (
	// plainScripts publish to all who listen at the server.
	plainScripts = &scripts{joinScript, renewScript, leaveScript, breakScript, inspectScript}
	// shardScripts returns the scripts that publish in the queue's slot of a
	// cluster.
	shardScripts = sync.OnceValue(func() *scripts {
		shard := func(s *wire.Script) *wire.Script {
			return wire.NewScript(strings.ReplaceAll(s.Text, "redis.pcall('PUBLISH', ", "redis.pcall('SPUBLISH', "))
		}
		p := plainScripts
		return &scripts{shard(p.join), shard(p.renew), shard(p.leave), shard(p.remove), shard(p.inspect)}
	})
)

// newScript makes a script of parts. The common steps of several scripts come after
// a first half, which handles the usual case without defining any of those steps.
func newScript(files ...string) *wire.Script {
	var b strings.Builder
	for _, file := range files {
		text, err := lua.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the parts are embedded with the program
		}
		b.Write(text)
	}
	return wire.NewScript(b.String())
}

// noScript reports whether the server did not know a script by its name: it
// was restarted, was ordered to forget its scripts, or never saw this one.
func noScript(err error) bool { return strings.HasPrefix(answerOf(err), "NOSCRIPT") }
