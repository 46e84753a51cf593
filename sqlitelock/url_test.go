package sqlitelock

import (
	"context"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url, path string
		o         Options
		err       string // a substring
	}{
		{url: "sqlite:locks.db", path: "locks.db"},
		{url: "sqlite:dir/locks.db", path: "dir/locks.db"},
		{url: "sqlite:./locks.db", path: "./locks.db"},
		{url: "sqlite:/var/lib/locks.db", path: "/var/lib/locks.db"},
		{url: "sqlite:///var/lib/locks.db", path: "/var/lib/locks.db"},
		{url: "sqlite:/a%20b%3f%25/ü.db", path: "/a b?%/ü.db"},
		{url: "sqlite:a b.db", path: "a b.db"},
		{url: "sqlite:file:x.db", path: "file:x.db"},
		{url: "sqlite:x?sync=normal", path: "x", o: Options{Sync: SyncNormal}},
		{url: "sqlite:x?sync=full&dir=create&fs=any", path: "x", o: Options{CreateDir: true, AnyFileSystem: true}},
		{url: "sqlite:x?", path: "x"},

		{url: "", err: "begins with sqlite:"},
		{url: "sqlit:x", err: "begins with sqlite:"},
		{url: "sqlite", err: "begins with sqlite:"},
		{url: "sqlite:", err: "empty"},
		{url: "sqlite:?sync=full", err: "empty"},
		{url: "sqlite://", err: "absolute path"},
		{url: "sqlite://locks.db", err: "absolute path"},
		{url: "sqlite://host/locks.db", err: "absolute path"},
		{url: "sqlite:/dir/", err: "is a directory"},
		{url: "sqlite:///", err: "is a directory"},
		{url: "sqlite::memory:", err: "memory:"},
		{url: "sqlite:a%00b", err: "NUL"},
		{url: "sqlite:a%zz", err: "escape"},
		{url: "sqlite:x?sync=off", err: "full or normal"},
		{url: "sqlite:x?dir=maybe", err: "option dir is create"},
		{url: "sqlite:x?fs=nfs", err: "option fs is any"},
		{url: "sqlite:x?sync=full&sync=normal", err: "2 times"},
		{url: "sqlite:x?mode=ro", err: `unknown option "mode"`},
		{url: "sqlite:x?a;b", err: "options of the URL"},
	} {
		path, o, err := ParseURL(c.url)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error is %v, want one about %q", c.url, err, c.err)
			}
			if _, err := OpenURL(context.Background(), c.url); err == nil {
				t.Errorf("%q was opened", c.url)
			}
			continue
		}
		if err != nil || path != c.path || *o != c.o {
			t.Errorf("%q: %q, %+v, %v; want %q, %+v", c.url, path, o, err, c.path, c.o)
		}
	}
}

func TestInvalidOptionIsRefused(t *testing.T) {
	_, err := Open(context.Background(), t.TempDir()+"/x", &Options{Sync: 7})
	if err == nil || driver.ClassOf(err) != driver.Refused {
		t.Errorf("error is %v", err)
	}
}

// FuzzParseURL checks that a path which ParseURL accepts can be written as a
// URL again.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"sqlite:x", "sqlite:///a/b?sync=normal", "sqlite:%41?dir=create", "sqlite:a?b=c&d", "sqlite::memory:", "sqlite:\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, o, err := ParseURL(s)
		if err != nil {
			return
		}
		if path == "" || strings.ContainsRune(path, 0) {
			t.Fatalf("%q gives the path %q", s, path)
		}
		escaped := strings.NewReplacer("%", "%25", "?", "%3F").Replace(path)
		if strings.HasPrefix(escaped, "//") {
			escaped = "//" + escaped // otherwise the path would begin with a host
		}
		again, p, err := ParseURL("sqlite:" + escaped)
		if err != nil || again != path || *p != (Options{}) {
			t.Fatalf("%q gives %q, and that %q, %+v, %v", s, path, again, p, err)
		}
		_ = o
	})
}
