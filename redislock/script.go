package redislock

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
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

// command runs the script: by its name, or in full, which also makes the
// server remember it.
func (s *script) command(b rueidis.Builder, full bool, keys []string, args ...string) rueidis.Completed {
	n := numKeysText
	if len(keys) != numKeys {
		n = strconv.Itoa(len(keys))
	}
	if full {
		return b.Arbitrary("EVAL", s.text, n).Keys(keys...).Args(args...).Build()
	}
	return b.Arbitrary("EVALSHA", s.sha, n).Keys(keys...).Args(args...).Build()
}

// noScript says whether the server did not know a script by its name: it was
// restarted, told to forget its scripts, or never saw this one.
func noScript(err error) bool {
	re, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && re.IsNoScript()
}
