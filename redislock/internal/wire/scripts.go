package wire

import (
	"embed"
	"strings"
)

//go:embed lua/*.lua
var lua embed.FS

// Scripts is the set of scripts for one way of publishing pushes.
type Scripts struct{ Join, Renew, Leave, Remove, Inspect, Mark, Guard *Script }

// NewScripts returns the scripts that publish to all who listen at the server. It puts
// their texts together and hashes them, which takes some 200 µs.
func NewScripts() *Scripts {
	return &Scripts{
		Join:    scriptOf("grant", "queue", "grants", "join"),
		Renew:   scriptOf("renew", "queue", "grants", "renew_any"),
		Leave:   scriptOf("release", "queue", "grants", "leave"),
		Remove:  scriptOf("call", "queue", "grants", "break"),
		Inspect: scriptOf("call", "queue", "grants", "inspect"),
		Mark:    scriptOf("mark"),
		Guard:   scriptOf("guard"),
	}
}

// NewShardScripts returns the scripts that publish in the queue's slot of a cluster.
func NewShardScripts() *Scripts {
	s := NewScripts()
	for _, script := range []**Script{&s.Join, &s.Renew, &s.Leave, &s.Remove, &s.Inspect} {
		*script = sharded(*script)
	}
	return s
}

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
