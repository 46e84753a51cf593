package layering

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxClientLines is the maximum number of lines of a client in another language, blank
// lines and comments included, and MaxClientWidth the length of its longest line, so that
// none counts for two.
const (
	MaxClientLines = 300
	MaxClientWidth = 100
)

// clientFiles are the source files of each client: the client, and perhaps its types, which
// have no code.
var clientFiles = map[string][]string{
	"clients/java":   {"clients/java/src/main/java/io/github/holdfastgo/Locks.java"},
	"clients/node":   {"clients/node/holdfast.js", "clients/node/holdfast.d.ts"},
	"clients/python": {"clients/python/holdfast/__init__.py"},
	"clients/sh":     {"clients/sh/holdfast.sh"},
}

func checkClients(t *Tree) (bad []string) {
	for _, text := range t.Texts {
		client, ok := clientOf(text.Path)
		if !ok {
			continue
		}
		if !slices.Contains(clientFiles[client], text.Path) {
			bad = append(bad, fmt.Sprintf("%s is no file of clientFiles", text.Path))
			continue
		}
		if n := strings.Count(string(text.Data), "\n"); n > MaxClientLines {
			bad = append(bad, fmt.Sprintf("%s has %d lines", text.Path, n))
		}
		for i, line := range strings.Split(string(text.Data), "\n") {
			if n := utf8.RuneCountInString(line); n > MaxClientWidth {
				bad = append(bad, fmt.Sprintf("%s:%d has %d characters", text.Path, i+1, n))
			}
		}
	}
	return bad
}

// clientOf returns the client whose source a file is. Tests, examples, and the workers of
// the count are none.
func clientOf(p string) (client string, ok bool) {
	parts := strings.Split(p, "/")
	if len(parts) < 3 || clientFiles[parts[0]+"/"+parts[1]] == nil {
		return "", false
	}
	switch path.Ext(p) {
	case ".java", ".js", ".mjs", ".ts", ".py", ".sh":
	default:
		return "", false
	}
	for _, part := range parts[2:] {
		if name, _, _ := strings.Cut(part, "."); name == "test" || name == "tests" || name == "worker" || name == "example" {
			return "", false
		}
	}
	return parts[0] + "/" + parts[1], true
}
