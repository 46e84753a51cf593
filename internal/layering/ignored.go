package layering

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// ignored are the patterns of a .gitignore. A pattern that begins with a slash names a
// path from the root, and any other one a file's or folder's name at any depth. One that
// ends with a slash is about folders only.
type ignored []string

// readIgnored reads the .gitignore at the top of fsys, if there is one. It refuses
// patterns of other forms.
func readIgnored(fsys fs.FS) (ignored, error) {
	text, err := fs.ReadFile(fsys, ".gitignore")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all ignored
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(line, "/"), "/")
		if _, err := path.Match(name, ""); err != nil || name == "" || line[0] == '!' ||
			strings.Contains(name, "**") || line[0] != '/' && strings.Contains(name, "/") {
			return nil, fmt.Errorf(".gitignore: the pattern %q is not of the forms /PATH, /PATH/, NAME and NAME/", line)
		}
		all = append(all, line)
	}
	return all, nil
}

// has reports whether a pattern matches the file or folder at p.
func (all ignored) has(p string, folder bool) bool {
	for _, pattern := range all {
		name, onlyFolders := strings.CutSuffix(pattern, "/")
		if onlyFolders && !folder {
			continue
		}
		at := path.Base(p)
		if rest, rooted := strings.CutPrefix(name, "/"); rooted {
			name, at = rest, p
		}
		if ok, _ := path.Match(name, at); ok {
			return true
		}
	}
	return false
}
