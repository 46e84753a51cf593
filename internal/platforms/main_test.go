package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCheckFindsWhatDoesNotCompile plants what a build for a platform would refuse, each in
// a module of its own, and asks the others whether they are sound.
func TestCheckFindsWhatDoesNotCompile(t *testing.T) {
	cases := map[string]struct {
		files    map[string]string // beside a go.mod and a main.go
		fails    []string          // platforms
		says     string
		platform []string // where it is asked; nil: everywhere
	}{
		"sound": {},
		"a file of one system": {
			files: map[string]string{"a_freebsd.go": "package main\n\nvar _ = missing\n"},
			fails: []string{"freebsd"}, says: "a_freebsd.go:3:9: undefined: missing",
		},
		"what one system lacks": {
			files: map[string]string{"a.go": "package main\n\nimport \"syscall\"\n\nfunc lock() error { return syscall.Flock(0, syscall.LOCK_EX) }\n"},
			fails: []string{"windows"}, says: "undefined: syscall.Flock",
		},
		"a name that some files miss": {
			files: map[string]string{
				"a.go":      "package main\n\nvar _ = system\n",
				"a_unix.go": "//go:build unix\n\npackage main\n\nconst system = true\n",
			},
			fails: []string{"windows"}, says: "undefined: system",
		},
		"a small processor": {
			files: map[string]string{"a.go": "package main\n\nconst _ int = 1 << 40\n"},
			fails: []string{"linux/386"}, says: "overflows", platform: []string{"linux/386", "linux/arm64"},
		},
		"the body of a dependency": {
			files: map[string]string{
				"a.go":                 "package main\n\nimport _ \"example.org/other\"\n",
				"other/go.mod":         "module example.org/other\n\ngo 1.26.0\n",
				"other/other.go":       "package other\n",
				"other/part_darwin.go": "package other\n\nfunc F() int { return \"no number\" }\n",
			},
			fails: []string{"darwin"}, says: "part_darwin.go:3:23: cannot use",
		},
		"an import that is not used": {
			files: map[string]string{"a_windows.go": "package main\n\nimport \"os\"\n"},
			fails: []string{"windows"}, says: "\"os\" imported and not used",
		},
		"no file at all": {
			files: map[string]string{
				"part/part.go": "//go:build linux\n\npackage part\n",
				"a.go":         "package main\n\nimport _ \"example.org/m/part\"\n",
			},
			fails: []string{"darwin", "freebsd", "windows"}, says: "build constraints exclude all Go files",
		},
		"only with cgo": {
			files: map[string]string{
				"a.go":   "package main\n\nvar _ = ofC\n",
				"cgo.go": "package main\n\n// static int one(void) { return 1; }\nimport \"C\"\n\nvar ofC = C.one()\n",
			},
			fails: everywhere, says: "undefined: ofC",
		},
		"a file to embed": {
			files: map[string]string{"a_darwin.go": "package main\n\nimport _ \"embed\"\n\n//go:embed missing\nvar _ string\n"},
			fails: []string{"darwin"}, says: "missing: no matching files found",
		},
		"a language that is too new": {
			files: map[string]string{"a.go": "//go:build go1.20\n\npackage main\n", "other/go.mod": "module example.org/other\n\ngo 1.17\n",
				"other/other.go": "package other\n\nfunc Of[T any]() {}\n", "b.go": "package main\n\nimport _ \"example.org/other\"\n"},
			fails: everywhere, says: "go1.18 or later",
		},
	}
	files := newSources()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			all := map[string]string{
				"main.go":      "package main\n\nfunc main() { println(len(\"all is well\")) }\n",
				"go.mod":       "module example.org/m\n\ngo 1.26.0\n\nrequire example.org/other v0.0.0\n\nreplace example.org/other => ./other\n",
				"other/go.mod": "module example.org/other\n\ngo 1.26.0\n",
			}
			for file, text := range c.files {
				all[file] = text
			}
			for file, text := range all {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("GOWORK", "off")
			if c.platform == nil {
				c.platform = everywhere
			}
			for _, platform := range c.platform {
				n, err := check(files, platform, dir, ".")
				switch fails := slices.Contains(c.fails, platform); {
				case fails && err == nil:
					t.Errorf("%s: %d packages are sound", platform, n)
				case fails && !strings.Contains(err.Error(), c.says):
					t.Errorf("%s: %v; want %q", platform, err, c.says)
				case !fails && err != nil:
					t.Errorf("%s: %v", platform, err)
				case !fails && n < 5:
					t.Errorf("%s: %d packages", platform, n)
				}
			}
		})
	}
}
