package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// kind returns the content of a block for the block's argument.
type kind func(argument string) (string, error)

var (
	opening = regexp.MustCompile(`^<!-- generated:([a-z]+)(?: ([^ ]+))? -->$`)
	closing = "<!-- /generated -->"
)

// replace fills the blocks of a text, and returns the kinds that it met.
// Everything outside of blocks stays byte for byte. A block inside of fenced
// code is text like any other.
func replace(text []byte, kinds map[string]kind) (out []byte, used []string, err error) {
	var b bytes.Buffer
	inside, fenced := 0, false // inside is the line that opened the block
	n := 0
	for line := range bytes.Lines(text) {
		n++
		bare := strings.TrimRight(string(line), "\r\n")
		if inside == 0 && strings.HasPrefix(bare, "```") {
			fenced = !fenced
		}
		m := opening.FindStringSubmatch(bare)
		switch {
		case fenced:
			b.Write(line)
		case inside > 0 && bare == closing:
			b.Write(line)
			inside = 0
		case inside > 0 && m != nil:
			return nil, nil, fmt.Errorf("line %d: block opened at line %d is not closed", n, inside)
		case inside > 0: // replaced
		case m != nil:
			fill := kinds[m[1]]
			if fill == nil {
				return nil, nil, fmt.Errorf("line %d: there is no block %q", n, m[1])
			}
			content, err := fill(m[2])
			if err != nil {
				return nil, nil, fmt.Errorf("line %d: %w", n, err)
			}
			b.Write(line)
			b.WriteString(content)
			used, inside = append(used, m[1]), n
		case bare == closing || strings.HasPrefix(bare, "<!-- generated"):
			return nil, nil, fmt.Errorf("line %d: stray or malformed %s", n, bare)
		default:
			b.Write(line)
		}
	}
	if inside > 0 {
		return nil, nil, fmt.Errorf("line %d: block is not closed", inside)
	}
	return b.Bytes(), used, nil
}

// code returns a Go file as fenced code, from its package clause on: the
// comments above the clause are for readers of the file.
func code(fsys fs.FS, file string) (string, error) {
	if path.Ext(file) != ".go" {
		return "", fmt.Errorf("%q is no Go file", file)
	}
	data, err := fs.ReadFile(fsys, file)
	if err != nil {
		return "", err
	}
	text := string(data)
	if i := strings.Index("\n"+text, "\npackage "); i > 0 {
		text = text[i:]
	}
	return "```go\n" + strings.TrimSpace(text) + "\n```\n", nil
}
