package zklock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// FuzzNodes checks that any node in a queue is taken for a ticket's, for a
// base, or for a foreign one.
func FuzzNodes(f *testing.F) {
	const uuid = "_c_00112233-4455-6677-8899-aabbccddeeff-"
	for _, s := range []string{
		uuid + "lock-0000000007", uuid + "__READ__0000000007", uuid + "__WRIT__-000000007", uuid[:len(uuid)-1] + "-sem-3-2-0000000007",
		uuid + "o0011223344556677-lock-0000000007", "lock-0000000007", "x-lock-2147483648", "-sem-3-4-0000000007", "-sem-9223372036854775807-1-0000000001",
		"_c_0000000000000000000000000000000000000__READ__0000000000", "_c_------------------------------------" + "-lock-0000000001", "base-7-0000000001", "base--1-0000000001", "base-18446744073709551615-0000000001", "", "_c_", "base-",
	} {
		f.Add(s, []byte(`{"id":"a:1","ttl":5,"meta":"m","token":7}`))
		f.Add(s, []byte("10.0.0.1\x00"))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if n, ok := parseNode(name); ok {
			if n.units < 1 || n.units > n.limit || n.name != name || n.uuid != "" && !strings.Contains(name, n.uuid) || n.owner != "" && len(n.owner) != 17 {
				t.Errorf("%q is %+v", name, n)
			}
		}
		if b, ok := parseBase(name); ok && !strings.HasPrefix(name, baseMark) {
			t.Errorf("%q is the base %+v", name, b)
		}
		if d := readData(name, data); d.ID == "" && name != "" || len(d.Meta) > len(data)*3 && len(d.Meta) > driver.MaxMeta {
			t.Errorf("%q of %q is %+v", data, name, d)
		}
	})
}

// FuzzParseURL checks that the error of a malformed URL never shows the
// password.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"@h", "@h:1,i:2/c?tick=2s", "@h/c/", "/x@h", "%@h", "@[::1]:2181", "@h?dial_timeout=x", "@h?ca=nowhere", "@,h"} {
		f.Add("u", s)
	}
	f.Fuzz(func(t *testing.T, user, rest string) {
		const hush = "hunter2Qx"
		if strings.ContainsAny(user, "?/@#") || strings.Contains(rest, hush) || strings.Contains(user, hush) || !strings.Contains(rest, "@") || strings.Contains(rest, "=/") {
			return
		}
		if _, _, _, err := parseURL("zks://" + user + ":" + hush + rest); err != nil && strings.Contains(err.Error(), hush) {
			t.Errorf("%v", err)
		}
	})
}
