// Package wire has what travels between a driver and a server of Redis: keys,
// scripts, requests and answers, and the classes of the errors among the
// answers. It does no I/O, so that each part can be tested without a server.
package wire

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
)

// Script is the text of one request, and the name that servers give it.
type Script struct{ Text, SHA string }

// NewScript returns a script of a text.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) // Redis names scripts by SHA-1; nothing secret depends on it
	return &Script{text, hex.EncodeToString(sum[:])}
}

// MaxArgs is the most arguments of a Request.
const MaxArgs = 10

// Request runs a script on one queue: by its name, or in full, which also makes
// the server remember the script.
//
// It is passed by value, with room for the keys and the arguments, so that a
// request allocates nothing for them on its way through an interface.
type Request struct {
	Script  *Script
	Full    bool
	NumKeys int
	NumArgs int
	Keys    [NumKeys]string
	Args    [MaxArgs]string
}

// Words returns the command that runs a script.
func (s *Script) Words(full bool, keys, args []string) []string {
	w := make([]string, 0, 3+len(keys)+len(args))
	if full {
		w = append(w, "EVAL", s.Text)
	} else {
		w = append(w, "EVALSHA", s.SHA)
	}
	w = append(w, strconv.Itoa(len(keys)))
	return append(append(w, keys...), args...)
}

// Words returns the request's command.
func (r *Request) Words() []string {
	return r.Script.Words(r.Full, r.Keys[:r.NumKeys], r.Args[:r.NumArgs])
}
