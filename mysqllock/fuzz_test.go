package mysqllock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzMessage checks that a message grants a ticket with a token, ends one, or
// has no state.
func FuzzMessage(f *testing.F) {
	f.Add("a:1", int64(driver.Held), int64(7))
	f.Add("a:1", int64(driver.Held), int64(0))
	f.Add("a:1", int64(driver.Gone), int64(-7))
	f.Add("", int64(driver.Waiting), int64(1))
	f.Add("x", int64(256)+int64(driver.Held), int64(-1))
	f.Fuzz(func(t *testing.T, id string, state, token int64) {
		m := messageOf(id, state, token)
		switch m.status.State {
		case driver.Held:
			if state != int64(driver.Held) || token <= 0 || m.status.Token != uint64(token) {
				t.Errorf("state %d and token %d are a grant of %d", state, token, m.status.Token)
			}
		case driver.Gone:
			if state != int64(driver.Gone) {
				t.Errorf("state %d is an end", state)
			}
		case 0:
		default:
			t.Errorf("state %d is %v", state, m.status.State)
		}
		if m.id != id {
			t.Errorf("%q is %q", id, m.id)
		}
	})
}

// FuzzParseURL checks that no error of a URL contains its password.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"@h/d", "@h:1/d?tls=skip-verify", "@h/d?max_conns=x", "@/d?socket=%2Frun%2Fs", "/x@h/d", "%@h", "@h/d?tls=preferred&tls_ca=x", "@[::1]:3306/d?x=1", "@/0?socket"} {
		f.Add("u", s)
	}
	f.Fuzz(func(t *testing.T, user, rest string) {
		const hush = "hunter2Qx"
		if strings.ContainsAny(user, "?/@#") || strings.Contains(rest, hush) || strings.Contains(user, hush) || !strings.Contains(rest, "@") {
			return
		}
		config, o, err := parseURL("mysql://" + user + ":" + hush + rest)
		if err != nil && strings.Contains(err.Error(), hush) {
			t.Errorf("%v", err)
		}
		if err == nil && (config.Addr == "" || config.DBName == "" || o == nil) {
			t.Errorf("%q is taken for a database %q at %q", rest, config.DBName, config.Addr)
		}
	})
}
