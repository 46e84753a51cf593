package driver_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// TestCheckName checks legal and illegal names.
//
// Covers: F61.
func TestCheckName(t *testing.T) {
	for _, ok := range append(drivertest.Nasty(), "a", strings.Repeat("n", driver.MaxName), strings.Repeat("界", driver.MaxName/3), "\ufffd", "\U0010ffff") {
		if err := driver.CheckName(ok); err != nil {
			t.Errorf("name %.40q: %v", ok, err)
		}
	}
	for wrong, says := range map[string]string{
		"":                                    "empty",
		strings.Repeat("n", driver.MaxName+1): "4097 bytes",
		strings.Repeat("界", driver.MaxName/3+1): "bytes",
		"\xff": "UTF-8", "a\xc3": "UTF-8", "\xed\xa0\x80": "UTF-8", "\xc0\x80": "UTF-8", "\xf4\x90\x80\x80": "UTF-8",
	} {
		if err := driver.CheckName(wrong); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("name %.40q: error is %v, want one about %s", wrong, err, says)
		}
	}
}

func TestCheckOwner(t *testing.T) {
	for _, ok := range []string{"", "job", "job 7", "ä", "a:b/c", strings.Repeat("o", driver.MaxOwner), "\u0085", "\u200b"} {
		if err := driver.CheckOwner(ok); err != nil {
			t.Errorf("owner %.40q: %v", ok, err)
		}
	}
	for _, wrong := range []string{strings.Repeat("o", driver.MaxOwner+1), "\xff", "a\x00", "\n", "a\tb", "\x7f", "\x1b[0m"} {
		if err := driver.CheckOwner(wrong); err == nil {
			t.Errorf("owner %.40q is legal", wrong)
		}
	}
}

func TestCheckMeta(t *testing.T) {
	for _, ok := range []string{"", "\x00", "\n", strings.Repeat("m", driver.MaxMeta)} {
		if err := driver.CheckMeta(ok); err != nil {
			t.Errorf("metadata %.40q: %v", ok, err)
		}
	}
	for _, wrong := range []string{strings.Repeat("m", driver.MaxMeta+1), "\xff"} {
		if err := driver.CheckMeta(wrong); err == nil {
			t.Errorf("metadata %.40q is legal", wrong)
		}
	}
}

// charsets are of the kinds that stores need: nearly everything, a path
// element, and as little as can be.
var charsets = map[string]driver.Charset{
	"all":  {Plain: func(byte) bool { return true }, Max: 200},
	"path": {Plain: func(b byte) bool { return b > ' ' && b < 0x7f && b != '/' && b != '.' }, Max: 255},
	"word": {Plain: func(b byte) bool { return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' }, Max: 65},
	"none": {Plain: func(byte) bool { return false }, Max: 100},
}

func TestEncode(t *testing.T) {
	sum := sha256.Sum256([]byte(strings.Repeat("n", 66)))
	for _, c := range []struct{ charset, name, want string }{
		{"path", "invoice-42", "invoice-42"},
		{"path", "invoice/42", "invoice%2F42"},
		{"path", "..", "%2E%2E"},
		{"path", "100%", "100%25"},
		{"path", "%2F", "%252F"},
		{"path", "~home", "%7Ehome"},
		{"path", "ä", "%C3%A4"},
		{"path", "a\x00", "a%00"},
		{"all", "a/b ä\x00", "a/b ä\x00"},
		{"all", "~%", "%7E%25"},
		{"word", "A", "%41"},
		{"word", strings.Repeat("n", 65), strings.Repeat("n", 65)},
		{"word", strings.Repeat("n", 66), "~" + hex.EncodeToString(sum[:])},
		{"none", "a", "%61"},
		{"none", strings.Repeat("a", 33), strings.Repeat("%61", 33)},
	} {
		if got := charsets[c.charset].Encode(c.name); got != c.want {
			t.Errorf("%s: %q is encoded as %q, want %q", c.charset, c.name, got, c.want)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, enc := range []string{"%", "a%", "a%4", "%zz", "%4g", "%+1", "a%2f", "%61", "a/b", " ", "~", "~abc", "a~", "a%7e", "ä", strings.Repeat("n", 256), strings.Repeat("%2F", 86)} {
		if name, err := charsets["path"].Decode(enc); err == nil {
			t.Errorf("%q is decoded as %q", enc, name)
		}
	}
}

// TestF61_F62_NastyNamesStayApart checks that names that some store or program
// has confused have encodings of their own in every charset, also where case does
// not count.
func TestF61_F62_NastyNamesStayApart(t *testing.T) {
	for kind, c := range charsets {
		seen := make(map[string]string)
		for _, name := range drivertest.Nasty() {
			enc := c.Encode(name)
			check(t, kind, c, name, enc)
			if other, is := seen[enc]; is && other != name {
				t.Errorf("%s: %q and %q are both %q", kind, name, other, enc)
			}
			seen[enc] = name
		}
	}
}

// check checks what is true of every encoding.
func check(t *testing.T, kind string, c driver.Charset, name, enc string) {
	t.Helper()
	if len(enc) > c.Max {
		t.Errorf("%s: %q is encoded in %d bytes, the most is %d", kind, name, len(enc), c.Max)
	}
	for i := range len(enc) {
		if b := enc[i]; !c.Plain(b) && b != '%' && b != '~' && !strings.ContainsRune("0123456789ABCDEF", rune(b)) {
			if enc[0] != '~' || !strings.ContainsRune("0123456789abcdef", rune(b)) {
				t.Errorf("%s: %q is encoded as %q, with a byte %q", kind, name, enc, b)
			}
		}
	}
	switch got, err := c.Decode(enc); {
	case strings.HasPrefix(enc, "~"):
		if err == nil {
			t.Errorf("%s: the hash %q is decoded as %q", kind, enc, got)
		}
	case err != nil || got != name:
		t.Errorf("%s: %q is encoded as %q and decoded as %q, %v", kind, name, enc, got, err)
	}
}

// FuzzEncode checks that two names never have one encoding, and that Decode
// returns the name of an encoding or an error.
func FuzzEncode(f *testing.F) {
	for i, name := range drivertest.Nasty() {
		f.Add(name, drivertest.Nasty()[max(i-1, 0)])
	}
	f.Add("%2F", "/")
	f.Add("~", "%7E")
	f.Fuzz(func(t *testing.T, a, b string) {
		for kind, c := range charsets {
			ea, eb := c.Encode(a), c.Encode(b)
			check(t, kind, c, a, ea)
			if ea == eb && a != b {
				t.Errorf("%s: %q and %q are both %q", kind, a, b, ea)
			}
		}
	})
}

// FuzzDecode checks that Decode accepts only what Encode returns.
func FuzzDecode(f *testing.F) {
	for _, enc := range []string{"a", "%2F", "%2f", "%61", "~", "%7E", "%", "a%2"} {
		f.Add(enc)
	}
	f.Fuzz(func(t *testing.T, enc string) {
		for kind, c := range charsets {
			if name, err := c.Decode(enc); err == nil && c.Encode(name) != enc {
				t.Errorf("%s: %q is decoded as %q, which is encoded as %q", kind, enc, name, c.Encode(name))
			}
		}
	})
}

// FuzzChecks checks that checks and encodings accept all bytes without a panic, and
// keep their documented bounds.
func FuzzChecks(f *testing.F) {
	for _, s := range []string{"", "a", "\x00", "\xff", "\x7f", "ä"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if driver.CheckName(s) == nil && (s == "" || len(s) > driver.MaxName) {
			t.Errorf("name %q is legal", s)
		}
		if driver.CheckOwner(s) == nil && (len(s) > driver.MaxOwner || strings.ContainsAny(s, "\x00\n\x1f\x7f")) {
			t.Errorf("owner %q is legal", s)
		}
		if driver.CheckMeta(s) == nil && len(s) > driver.MaxMeta {
			t.Errorf("metadata %q is legal", s)
		}
		for _, err := range []error{driver.CheckName(s), driver.CheckOwner(s), driver.CheckMeta(s)} {
			if err != nil && len(s) > 20 && strings.Contains(err.Error(), s) {
				t.Errorf("an error repeats what it refuses: %v", err)
			}
		}
	})
}
