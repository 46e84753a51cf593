package pglock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzPayload checks that a notification grants a ticket with a token, ends
// one, or is rejected, and that parse reads back the payloads of this package.
func FuzzPayload(f *testing.F) {
	for _, s := range []string{"h7 a:1", "g0 a:1", "h0 a:1", "h a:1", "h7", "", " ", "h18446744073709551616 a", "g-1 a:1", "echo", "h7 a b\nc", "hé 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, p, ok := parsePayload(s)
		if !ok {
			if id != "" || p.State != 0 {
				t.Errorf("%q is not understood, and yet %q, %+v", s, id, p)
			}
			return
		}
		if id == "" || p.State != driver.Gone && (p.State != driver.Held || p.Token == 0) {
			t.Errorf("%q is %q, %+v", s, id, p)
		}
		again, q, ok := parsePayload(payload(id, p))
		if !ok || again != id || q.State != p.State || p.State == driver.Held && q.Token != p.Token {
			t.Errorf("%q is %q, %+v, and then %q, %+v", s, id, p, again, q)
		}
	})
}

// FuzzParseURL checks that no error of a URL contains its password.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"@h/d", "@h:1/d?sslmode=require", "@h/d?sslmode=x", "@h/d?pool_max_conns=x", "/x@h/d", "%@h", "@h,i/d?listen=j:1", "@h/d?connect_timeout=x", "@h:port/d"} {
		f.Add("u", s)
	}
	f.Fuzz(func(t *testing.T, user, rest string) {
		const hush = "hunter2Qx"
		if strings.ContainsAny(user, "?/@#") || strings.Contains(rest, hush) || strings.Contains(user, hush) || !strings.Contains(rest, "@") ||
			strings.Contains(rest, "service") || strings.Contains(rest, "ssl") && strings.Contains(rest, "=/") || strings.Contains(rest, "passfile") {
			return // a fuzzer must not open files
		}
		config, o, err := parseURL("postgres://" + user + ":" + hush + rest)
		if err != nil && strings.Contains(err.Error(), hush) {
			t.Errorf("%v", err)
		}
		if err == nil && (config == nil || o == nil) {
			t.Errorf("%q is taken", rest)
		}
	})
}
