package anylock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustOpen(t *testing.T, url string, opts ...holdfast.ClientOption) *holdfast.Client {
	t.Helper()
	c, err := Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// exclude checks that two clients are clients of one store, or of two.
func exclude(t *testing.T, a, b *holdfast.Client, want bool) {
	t.Helper()
	ha, err := a.Mutex("m").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ha.Unlock()
	hb, err := b.Mutex("m").TryLock(t.Context())
	switch {
	case err == nil:
		hb.Unlock()
		if want {
			t.Error("both hold")
		}
	case !errors.Is(err, holdfast.ErrHeld):
		t.Fatal(err)
	case !want:
		t.Error("they exclude each other")
	}
}

func TestMemoryNamesAreStores(t *testing.T) {
	exclude(t, mustOpen(t, "memory:shared"), mustOpen(t, "MEMORY:shared"), true)
	exclude(t, mustOpen(t, "memory:shared"), mustOpen(t, "memory:other"), false)
	exclude(t, mustOpen(t, "memory:"), mustOpen(t, "memory:"), false)
}

func TestSQLiteFileIsOpened(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	exclude(t, mustOpen(t, url), mustOpen(t, url), true)
}

func TestOptionsReachTheClient(t *testing.T) {
	c := mustOpen(t, "memory:", holdfast.WithPrefix("p/"))
	h, err := c.Mutex("m").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Unlock()
	for name, err := range c.Names(t.Context(), "") {
		if name != "m" || err != nil {
			t.Errorf("name %q, error %v", name, err)
		}
	}
	if _, err := Open(t.Context(), "memory:", holdfast.WithTTL(-1)); err == nil {
		t.Error("a negative TTL was taken")
	}
}

func TestSchemesHaveForms(t *testing.T) {
	want := []string{"memory", "sqlite", "redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "redlock", "redlocks", "etcd", "etcds", "zk", "zks", "postgres", "postgresql", "mysql", "mariadb", "holdfast", "holdfasts", "holdfast-unix"}
	if got := Schemes(); !slices.Equal(got, want) {
		t.Errorf("schemes %v, want %v", got, want)
	}
	for i, f := range Forms() {
		if !strings.HasPrefix(f, want[i]+":") {
			t.Errorf("form %q of scheme %s", f, want[i])
		}
	}
}

// hush is the password in the URLs of refused; no error may contain it.
const hush = "hunter2Qx"

// refused are URLs that cannot be opened, and the reason that the error names.
var refused = []struct{ url, reason string }{
	{"", "the URL is empty"},
	{"locks.db", "not a URL: did you mean sqlite:PATH?"},
	{"://" + hush, "not a URL"},
	{"re dis://:" + hush + "@h", "not a URL"},
	{strings.Repeat("r", 30) + hush + ":", "not a URL"},
	{"oracle://u:" + hush + "@h", "unknown scheme oracle: known schemes are memory, sqlite, "},
	{"memory:a/b", "no host, path or options"},
	{"memory://" + hush, "no host"},
	{"memory:a?x=" + hush, "no host"},
	{"sqlite:", "path"},
	{"sqlite::memory:", "memory:"},
	{"sqlite:/x/y?journal=" + hush, "unknown option"},
	{"sqlite:/nowhere/at/all/locks.db", "/nowhere/at/all"},
	{"@u:" + hush + "@h", "contains a colon or another @"},
	{"@:" + hush, "contains a colon or another @"},
	{hush + ":x@h", "unknown scheme: known schemes are"},
	{hush + ":6379", "unknown scheme: did you mean redis://"},
	{"sqlit:x", "unknown scheme: did you mean sqlite:PATH?"},
	{"redis://u:" + hush + "@h:port", "URL"},
	{"redis://u:" + hush + "%zz@h", ""},
	{"redis://u:" + hush + "/x@h", ""},
	{"redis://u:x/" + hush + "?@h", ""},
	{"redis://u:" + hush + "@h/zero", "database"},
	{"redis://u:" + hush + "@h:1?retry=3", "unknown option"},
	{"redis://h:1?password=" + hush, "unknown option"},
	{"redis-cluster://u:" + hush + "@h,h2/1", "database 0"},
	{"redis-sentinel://u:" + hush + "@h,h2", "name"},
	{"redis-sentinel://h,h2/m?db=x&sentinel_password=" + hush, "option db"},
	{"redis://u:" + hush + "\x7f@h", ""},
	{"rediss://u:" + hush + "@h?ca=/nowhere", "ca"},
	{"etcd://u:" + hush + "@h:port", "port"},
	{"etcd://u:" + hush + "%zz@h", ""},
	{"etcd://u:" + hush + "@h/path", "path"},
	{"etcd://u:" + hush + "@h?retry=3", "unknown option"},
	{"etcds://u:" + hush + "@h?ca=/nowhere", "ca"},
	{"zk://u:" + hush + "@h:port", "URL"},
	{"zk://u:" + hush + "%zz@h", ""},
	{"zk://u:" + hush + "@h?retry=3", "unknown option"},
	{"zks://u:" + hush + "@h?ca=/nowhere", "ca"},
	{"postgres://u:" + hush + "@h:port/db", ""},
	{"postgres://u:" + hush + "%zz@h/db", ""},
	{"postgres://u:" + hush + "@h/db?retry=3", ""},
	{"mysql://u:" + hush + "@h:port/db", "URL"},
	{"mysql://u:" + hush + "%zz@h/db", "URL"},
	{"mysql://u:" + hush + "@h", "no database"},
	{"mariadb://u:" + hush + "@h/db?retry=3", "unknown option"},
	{"mariadb://u:" + hush + "@h/db?tls_ca=/nowhere", "tls_ca"},
}

func TestBadURLsAreRefused(t *testing.T) {
	for _, tt := range refused {
		t.Run(tt.url, func(t *testing.T) {
			c, err := Open(t.Context(), tt.url)
			if err == nil {
				c.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("error %q does not say %q", err, tt.reason)
			}
			if strings.Contains(strings.ToLower(deep(err)), strings.ToLower(hush)) {
				t.Errorf("the secret is in the error: %q", deep(err))
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("not one line: %q", err)
			}
		})
	}
}

// deep returns an error and those that it wraps, printed with all fields.
func deep(err error) string {
	text := ""
	for ; err != nil; err = errors.Unwrap(err) {
		text += fmt.Sprintf("%v %+v %#v\n", err, err, err)
	}
	return text
}

func TestServerDownIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close() // nobody listens there any more
	_, err = Open(t.Context(), "redis://u:"+hush+"@"+addr)
	if class := driver.ClassOf(err); err == nil || class != driver.Unavailable {
		t.Fatalf("error %v of class %q, want one of an unavailable store", err, class)
	}
	if !strings.Contains(err.Error(), addr) || strings.Contains(deep(err), hush) {
		t.Errorf("error %q: want the address and no secret", err)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, "redis://"+l.Addr().String())
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}
}
