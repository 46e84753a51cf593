package storeurl

import (
	"strings"
	"testing"
	"time"
)

func TestHostIsCompletedOrRefused(t *testing.T) {
	for s, want := range map[string]string{
		"h": "h:7", "h:8": "h:8", "": "localhost:7", ":8": "localhost:8", "[::1]": "[::1]:7", "[::1]:8": "[::1]:8", "10.0.0.1:65535": "10.0.0.1:65535",
		"::1": "", "h:": "", "h:0": "", "h:65536": "", "h:x": "", "a b": "", "a/b": "", "u@h": "", "[h": "", `a\b`: "",
	} {
		if got, err := Host(s, "7"); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v, want %q", s, got, err, want)
		}
	}
}

func TestOptionsAreKnownAndGivenOnce(t *testing.T) {
	for query, says := range map[string]string{
		"": "", "a=1&b=": "", "a=%": "percent sign", "a=1;b=2": "semicolon", "c=1": `unknown option "c"; there are a, b`,
		"a=1&a=2": "option a is given more than once", strings.Repeat("x", 30) + "=1": `"xxxxxxxxxxxxxxxxxxxx..."`, "äääääääääää=1": `"ääääääääää..."`,
	} {
		q, err := Options(query, []string{"a", "b"})
		if says == "" && (err != nil || q == nil) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v, want %q", query, err, says)
		}
	}
}

func TestDurationIsSetOrRefused(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 5, "d=1ms": time.Millisecond, "d=1h": time.Hour, "d=": -1, "d=0": -1, "d=61m": -1, "d=1us": -1, "d=5": -1,
	} {
		q, err := Options(text, []string{"d"})
		if err != nil {
			t.Fatal(err)
		}
		d := time.Duration(5)
		if err := Duration(q, "d", &d); (err != nil) != (want < 0) || err == nil && d != want {
			t.Errorf("%q is %v, %v", text, d, err)
		}
	}
}
