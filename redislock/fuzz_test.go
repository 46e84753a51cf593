package redislock

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzParseURL checks that every URL is read or refused, and that the error
// has no part of the password.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"redis://h:1/2?prefix=x", "rediss://u:pw@[::1]:7/3?server_name=x", "redis://:pw@", "redis://u:p/w@h",
		"redis://h?timeout=1s&dial_timeout=2m", "redis:///0", "redis:", "//h", "redis://h/%31", "redis://%41:%42@h", "redis://[::1%25lo]:1",
	} {
		f.Add(s, "Z7secretZ7")
	}
	f.Fuzz(func(t *testing.T, s, secret string) {
		a, err := parseURL(s)
		if err == nil {
			if a.addr == "" || a.db < 0 || a.timeout <= 0 || a.dialTimeout <= 0 {
				t.Errorf("%q is read as %+v", s, a)
			}
		} else if len(err.Error()) > 400 {
			t.Errorf("%q: an error of %d bytes", s, len(err.Error()))
		}
		if len(secret) < 6 || strings.Contains("user password scheme option host port database prefix number characters cannot percent-encoded", secret) {
			return
		}
		// The password raw, as people write it, and escaped, as it should be.
		for _, pw := range []string{secret, url.QueryEscape(secret)} {
			for _, tail := range []string{"", ":x", "/x", "?x=1", "#x", "/1?timeout=x"} {
				if _, err := parseURL("redis://user:" + pw + "@host" + tail); err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("the password %q is in %v", secret, err)
				}
			}
		}
	})
}
