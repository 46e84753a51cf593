package wire

import (
	"embed"
	"strings"
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts of a single server.
var (
	JoinScript    = scriptOf("grant", "queue", "grants", "join")
	renewScript   = scriptOf("renew", "queue", "grants", "renew_any")
	LeaveScript   = scriptOf("release", "queue", "grants", "leave")
	breakScript   = scriptOf("call", "queue", "grants", "break")
	inspectScript = scriptOf("call", "queue", "grants", "inspect")
	MarkScript    = scriptOf("mark")
	GuardScript   = scriptOf("guard")
)

// Scripts is the set of scripts for one way of publishing pushes.
type Scripts struct{ Join, Renew, Leave, Remove, Inspect *Script }

var (
	// PlainScripts publish to all who listen at the server.
	PlainScripts = &Scripts{JoinScript, renewScript, LeaveScript, breakScript, inspectScript}
	// ShardScripts publish in the queue's slot of a cluster.
	ShardScripts = &Scripts{sharded(JoinScript), sharded(renewScript), sharded(LeaveScript), sharded(breakScript), sharded(inspectScript)}
)

// sharded returns a script that publishes in a slot.
func sharded(s *Script) *Script {
	return NewScript(strings.ReplaceAll(s.Text, "redis.pcall('PUBLISH', ", "redis.pcall('SPUBLISH', "))
}

// ForRun returns the same script under a name that depends on the run id.
func ForRun(run string, s *Script) *Script {
	return NewScript("-- " + run + "\n" + s.Text)
}

// scriptOf makes a script of parts. The common steps of several scripts come after
// a first half, which handles the usual case without defining any of those steps.
func scriptOf(files ...string) *Script {
	var b strings.Builder
	for _, file := range files {
		text, err := lua.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the parts are embedded with the program
		}
		b.Write(text)
	}
	return NewScript(b.String())
}

// IsNoScript reports whether the server did not know a script by its name: it
// was restarted, was ordered to forget its scripts, or never saw this one.
func IsNoScript(err error) bool { return strings.HasPrefix(AnswerOf(err), "NOSCRIPT") }
