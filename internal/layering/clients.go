package layering

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxClientLines is the maximum number of lines of code of a client in another language, in
// all its files without tests. Blank lines, comments and lines of brackets alone do not
// count. MaxClientWidth is the length of its longest line, so that none counts for two.
const (
	MaxClientLines = 300
	MaxClientWidth = 120
)

// clientFiles are the source files of each client.
var clientFiles = map[string][]string{
	"clients/java":   {"clients/java/src/main/java/io/github/holdfastgo/Locks.java"},
	"clients/node":   {"clients/node/holdfast.js", "clients/node/holdfast.d.ts"},
	"clients/python": {"clients/python/holdfast/__init__.py"},
	"clients/sh":     {"clients/sh/holdfast.sh"},
}

func checkClients(t *Tree) (bad []string) {
	lines := make(map[string]int)
	for _, text := range t.Texts {
		client, ok := clientOf(text.Path)
		if !ok {
			continue
		}
		if !slices.Contains(clientFiles[client], text.Path) {
			bad = append(bad, fmt.Sprintf("%s is no file of clientFiles", text.Path))
			continue
		}
		lines[client] += codeLines(path.Ext(text.Path), string(text.Data))
		for i, line := range strings.Split(string(text.Data), "\n") {
			if n := utf8.RuneCountInString(line); n > MaxClientWidth {
				bad = append(bad, fmt.Sprintf("%s:%d has %d characters", text.Path, i+1, n))
			}
		}
	}
	for _, client := range slices.Sorted(maps.Keys(lines)) {
		if n := lines[client]; n > MaxClientLines {
			bad = append(bad, fmt.Sprintf("%s has %d lines of code", client, n))
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

// codeLines counts lines of code.
func codeLines(ext, text string) (n int) {
	marks := []string{"//", "/*", "*"}
	if ext == ".py" || ext == ".sh" {
		marks = []string{"#"}
	}
	const quotes = `"""`
	inDoc := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		comment := inDoc
		if ext == ".py" && (inDoc || strings.HasPrefix(line, quotes)) { // a docstring
			comment = true
			inDoc = strings.Count(line, quotes)%2 == 1 != inDoc
		}
		for _, mark := range marks {
			comment = comment || strings.HasPrefix(line, mark)
		}
		if !comment && strings.ContainsFunc(line, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}
