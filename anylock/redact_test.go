package anylock

import (
	"context"
	"errors"
	neturl "net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestRedact(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"redis://localhost", "redis://localhost"},
		{"redis://localhost:6379/3?prefix=a:", "redis://localhost:6379/3?prefix=a:"},
		{"redis://app@h", "redis://app@h"},
		{"redis://app:pw@h/1?x=1&y=2", "redis://app:***@h/1?x=1&y=2"},
		{"redis://:pw@h", "redis://:***@h"},
		{"redis://:p@w@h", "redis://:***@h"},
		{"redis://:p/w?x#@h:1", "redis://:***@h:1"},
		{"redis:u:pw@h", "redis:u:***@h"},
		{"rediss://h?password=x&auth=&AuthToken=z", "rediss://h?password=***&auth=&AuthToken=***"},
		{"sqlite:/data/a:b@c?dir=create", "sqlite:/data/a:b@c?dir=create"},
		{"memory:a:b@c", "memory:a:b@c"},
		{"oracle://u:pw@h", "oracle:***"},
		{"@u:pw@h", "@***"},
		{"@:pw", "@***"},
		{"pw:x", "***"},
		{"pw:x@h", "***"},
		{"pg:x@h", "pg:***"},
		{"@/etc/holdfast/store", "@/etc/holdfast/store"},
		{"pw", "***"},
		{"", "***"},
	} {
		if got := Redact(tt.url); got != tt.want {
			t.Errorf("Redact(%q) = %q, want %q", tt.url, got, tt.want)
		}
	}
}

// quoting is a store that does what the errors of package net/url do.
func quoting(class driver.Class) store {
	return store{"quoting", "quoting://", false, func(_ context.Context, url string) (driver.Driver, error) {
		if _, err := neturl.Parse(url); err != nil {
			return nil, driver.Wrap(class, err)
		}
		return nil, driver.Errorf(class, "cannot open %q", url)
	}}
}

// TestRedactErrorHidesSecrets has stores whose libraries put the URL into their errors.
func TestRedactErrorHidesSecrets(t *testing.T) {
	defer func(old []store) { stores = old }(stores)
	stores = append(stores[:len(stores):len(stores)], quoting(driver.Refused))
	for _, url := range []string{
		"quoting://u:" + hush + "@h",
		"quoting://u:" + hush + "@h/%zz",
		"quoting://u:" + hush + "%zz@h",
		"quoting://u:" + hush + "/more@h",
		"quoting://u:x/" + hush + "@h",
		"quoting://u:" + hush + "\n\"@h",
		"quoting://u:%68unter2Qx@h",
		"quoting://h?password=" + hush,
	} {
		_, err := Open(t.Context(), url)
		if err == nil || strings.Contains(deep(err), hush) {
			t.Errorf("%q: error %q", url, deep(err))
		}
		if driver.ClassOf(err) != driver.Refused {
			t.Errorf("%q: the class got lost: %v", url, err)
		}
	}
	_, err := Open(t.Context(), "quoting://u@h/%zz")
	var ue *neturl.Error
	if !errors.As(err, &ue) {
		t.Errorf("an error without a secret was changed: %v", err)
	}
}

// TestRedactErrorLeavesWords checks that a short password is hidden where it stands by
// itself, and that its letters stay in words, where their absence would show it.
func TestRedactErrorLeavesWords(t *testing.T) {
	for _, password := range []string{"t", "s", "in", "open", "%74"} {
		const text = "store unavailable: dialling 10.0.0.1:6379 stopped in the end, reopened"
		plain, _ := neturl.PathUnescape(password)
		got := redactError(errors.New(text+": NOAUTH "+plain+"@h"), "redis://u:"+password+"@h").Error()
		if want := strings.Replace(text, " in ", " "+map[bool]string{true: Hidden, false: "in"}[plain == "in"]+" ", 1) + ": NOAUTH ***@h"; got != want {
			t.Errorf("password %q: %q, want %q", password, got, want)
		}
	}
}

// FuzzOpen looks for a URL whose password shows up in an error. The context has
// ended, so that nothing is dialled.
func FuzzOpen(f *testing.F) {
	for _, tt := range refused {
		scheme, rest, _ := strings.Cut(tt.url, ":")
		before, after, found := strings.Cut(rest, hush)
		if found {
			f.Add(scheme, before, after)
		}
	}
	f.Add("redis", "//u:", "@h")
	f.Add("quoting", "//u:[", "]:@h:1:2")
	f.Add("quoting", "//u:", "@[::1]/a@b?password=c#d")
	old := stores
	stores = append(stores[:len(stores):len(stores)], quoting(driver.Unknown))
	f.Cleanup(func() { stores = old })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, scheme, before, after string) {
		url := scheme + ":" + before + hush + after
		s, _, err := storeOf(url)
		if err != nil {
			if strings.Contains(deep(err), hush) || strings.Contains(Redact(url), hush) {
				t.Errorf("%q: %v, %q", url, err, Redact(url))
			}
			return
		}
		if s.local {
			return // a path or a name is no secret, and to open it is to make it
		}
		// A secret is what stands where a password does.
		user := strings.TrimPrefix(before, "//")
		if !strings.Contains(user, ":") || !strings.Contains(after, "@") || strings.Contains(after, hush) {
			return
		}
		c, err := Open(ctx, url)
		if err == nil {
			c.Close()
			t.Fatalf("%q was opened with a context that had ended", url)
		}
		if strings.Contains(deep(err), hush) {
			t.Errorf("%q: the secret is in the error: %q", url, deep(err))
		}
		if strings.Contains(Redact(url), hush) {
			t.Errorf("%q is shown as %q", url, Redact(url))
		}
	})
}
