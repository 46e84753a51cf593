package lockauth

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockserver"
)

const (
	hashA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" // of "test"
	hashB = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752" // of "test2"
)

func rules(t *testing.T, text string) *Rules {
	t.Helper()
	r, err := ParseRules([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRulesOfAFileAreThoseOfItsPrincipals(t *testing.T) {
	r := rules(t, `{"principals":[
		{"name":"billing","token_sha256":["`+hashA+`","`+strings.ToUpper(hashB)+`"],"cert":["spiffe://corp/billing"],
		 "rights":[{"prefix":"invoice/","may":["read","lock"],"waiters":500,"max_hold_ms":3600000},{"prefix":"","may":["read"]}]},
		{"name":"uid:1000","rights":[{"prefix":"","may":["lock","break"]}]}]}`)
	p := r.byName["billing"]
	want := []lockserver.Grant{
		{Prefix: "invoice/", May: []lockserver.Right{lockserver.RightRead, lockserver.RightLock}, Waiters: 500, MaxHold: time.Hour},
		{May: []lockserver.Right{lockserver.RightRead}},
	}
	if p == nil || !slices.EqualFunc(p.Grants, want, func(a, b lockserver.Grant) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Errorf("billing is %v", p)
	}
	if len(r.byHash) != 2 || r.byCert["spiffe://corp/billing"] != p || r.byName["uid:1000"] == nil {
		t.Errorf("the rules are %v", r)
	}
}

func TestBadFilesAreRefusedWithTheirPlace(t *testing.T) {
	principal := func(more string) string {
		return `{"principals":[{"name":"a","token_sha256":["` + hashA + `"]` + more + `}]}`
	}
	for _, c := range []struct{ text, want string }{
		{``, "EOF"},
		{`{"principals":[`, "EOF"},
		{`{"principals":[]} {}`, "goes on"},
		{`{"principal":[]}`, "unknown field"},
		{`{"principals":[],"Principals":[]}`, "twice"},
		{"{\"principals\":[{\"name\":\"\xff\"}]}", "UTF-8"},
		{principal(`,"admin":true`), "unknown field"},
		{principal(`,"token_sha256":[]`), "twice"},
		{principal(`,"rights":[{"may":["read"]}]`), "rights 1: prefix"},
		{principal(`,"rights":[{"prefix":"a/"}]`), "rights 1: may"},
		{principal(`,"rights":[{"prefix":"a/","may":["write"]}]`), `"write"`},
		{principal(`,"rights":[{"prefix":"a/","may":["metrics"]}]`), `rights 1: metrics`},
		{principal(`,"rights":[{"prefix":"a/","may":["lock"],"waiters":-1}]`), "waiters -1"},
		{principal(`,"rights":[{"prefix":"a/","may":["lock"],"max_hold_ms":-1}]`), "max_hold_ms -1"},
		{principal(`,"rights":[{"prefix":"a/","may":["lock"],"max_hold_ms":9223372036854775807}]`), "max_hold_ms"},
		{principal(`,"cert":[""]`), "cert 1"},
		{`{"principals":[{"name":"a"}]}`, "neither"},
		{`{"principals":[{"name":"","cert":["x"]}]}`, "missing"},
		{`{"principals":[{"name":"a\u0000","cert":["x"]}]}`, "control"},
		{`{"principals":[{"name":" a","cert":["x"]}]}`, "space"},
		{`{"principals":[{"name":"local","cert":["x"]}]}`, "without credentials"},
		{`{"principals":[{"name":"uid:x"}]}`, "number of a user"},
		{`{"principals":[{"name":"uid:01"}]}`, "number of a user"},
		{`{"principals":[{"name":"uid:0","cert":["x"]}]}`, "neither tokens"},
		{`{"principals":[{"name":"a","cert":["x"]},{"name":"b","cert":["x"]}]}`, "principal 2"},
		{`{"principals":[{"name":"a","cert":["x"]},{"name":"a","cert":["y"]}]}`, "two principals"},
		{`{"principals":[{"name":"a","token_sha256":["` + hashA + `","` + hashA + `"]}]}`, "twice"},
		{`{"principals":[{"name":"a","token_sha256":["` + hashA + `","` + hashB + `","` + hashB + `"]}]}`, "maximum"},
		{`{"principals":[{"name":"a","token_sha256":["my password"]}]}`, "64 hexadecimal digits"},
	} {
		_, err := ParseRules([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one with %q", c.text, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), hashA) || strings.Contains(err.Error(), "my password")) {
			t.Errorf("%s: the error has a hash or a token: %v", c.text, err)
		}
	}
}

func TestTokensAreNewEachTimeAndFoundByHash(t *testing.T) {
	token, hash := NewToken()
	other, _ := NewToken()
	if token == other || !strings.HasPrefix(token, tokenPrefix) || len(token) != len(tokenPrefix)+43 || HashToken(token) != hash || HashToken("test") != hashA {
		t.Errorf("token of %d bytes, hash %s", len(token), hash)
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add([]byte(`{"principals":[{"name":"a","token_sha256":["` + hashA + `"],"cert":["x"],"rights":[{"prefix":"a/","may":["lock"]}]}]}`))
	f.Add([]byte(`{"principals":[{"name":"uid:7"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRules(data)
		if (r == nil) == (err == nil) {
			t.Fatalf("%v and %v", r, err)
		}
		if err != nil {
			return
		}
		for name, p := range r.byName {
			if p.Name != name || CheckName(name) != nil {
				t.Errorf("principal %q is %v", name, p)
			}
		}
	})
}
