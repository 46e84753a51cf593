package wire

import (
	"strconv"
	"strings"
)

// ParseInfo reads the answer to INFO.
func ParseInfo(text string) map[string]string {
	m := make(map[string]string)
	for row := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(row), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// ClientField reads a field of the answer to CLIENT INFO.
func ClientField(text, name string) string {
	for _, f := range strings.Fields(text) {
		if v, ok := strings.CutPrefix(f, name+"="); ok {
			return v
		}
	}
	return "?"
}

// AtLeast compares a version like "7.0.15" with a minimum; a version that
// cannot be read passes.
func AtLeast(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err1 != nil || err2 != nil || x > major || x == major && y >= minor
}
