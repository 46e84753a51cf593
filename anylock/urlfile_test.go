package anylock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadURL checks what a program reads of @FILE, as the command does (N56).
func TestReadURL(t *testing.T) {
	folder := t.TempDir()
	write := func(text string) string {
		t.Helper()
		f, err := os.CreateTemp(folder, "store")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return "@" + f.Name()
	}
	const url = "redis://u:pw@h:1"
	for from, want := range map[string]string{
		url:                                 url,
		write(url):                          url,
		write(" " + url + " \r\nanother\n"): url,
		write(strings.Repeat("a", maxURL)):  strings.Repeat("a", maxURL),
		write(url + "\n" + strings.Repeat("a", 2*maxURL)): url,
	} {
		if got, err := ReadURL(from); got != want || err != nil {
			t.Errorf("%.40q: %.40q, %v; want %.40q", from, got, err, want)
		}
	}
	for from, reason := range map[string]string{
		"":                                   "empty",
		"@":                                  "without the name",
		"@" + folder:                         "is a directory",
		"@" + filepath.Join(folder, "no"):    "no such file",
		write(""):                            "is empty",
		write(" \n" + url):                   "is empty",
		write("\ufeff" + url):                "byte-order mark",
		write(strings.Repeat("a", maxURL+1)): "longer than",
	} {
		if got, err := ReadURL(from); got != "" || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %.40q, %v; want one line that says %q", from, got, err, reason)
		}
	}
}
