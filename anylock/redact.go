package anylock

import (
	"errors"
	neturl "net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Hidden stands for a password in what Redact returns.
const Hidden = "***"

// Redact returns a URL as it may be shown: with [Hidden] in place of each
// password. A URL without one stays as it is. When in doubt, such as for a
// password that is not percent-encoded, it hides more rather than less. The name
// of a file, as in @FILE, stays, unless it contains a colon or another @.
func Redact(url string) string {
	if name, inFile := strings.CutPrefix(url, "@"); inFile {
		if likeURL(name) {
			return "@" + Hidden
		}
		return url
	}
	scheme, rest, ok := cutScheme(url)
	if !ok {
		return Hidden
	}
	s, _, err := storeOf(url)
	switch {
	case err != nil && !surelyScheme(scheme, rest):
		return Hidden
	case err != nil:
		return scheme + ":" + Hidden
	case s.local:
		return url
	}
	user, password, after := cutUser(rest)
	if password != "" {
		user += ":" + Hidden
	}
	if user != "" {
		user += "@"
	}
	slashes := ""
	if strings.HasPrefix(rest, "//") {
		slashes = "//"
	}
	before, query, found := strings.Cut(after, "?")
	if found {
		options := strings.Split(query, "&")
		for i, o := range options {
			if name, value, _ := strings.Cut(o, "="); secretOption(name) && value != "" {
				options[i] = name + "=" + Hidden
			}
		}
		before += "?" + strings.Join(options, "&")
	}
	return scheme + ":" + slashes + user + before
}

// cutUser splits the text after a scheme's colon into user, password, and the
// rest. It takes the last '@', since all text before it may belong to a password
// that is not encoded.
func cutUser(rest string) (user, password, after string) {
	rest = strings.TrimPrefix(rest, "//")
	at := strings.LastIndexByte(rest, '@')
	if at < 0 {
		return "", "", rest
	}
	user, password, _ = strings.Cut(rest[:at], ":")
	return user, password, rest[at+1:]
}

// secretOption reports whether an option of a URL has a value to hide.
func secretOption(name string) bool {
	name = strings.ToLower(name)
	if strings.HasSuffix(name, "_file") {
		return false // the name of a file, which is no secret
	}
	return slices.ContainsFunc([]string{"pass", "pwd", "secret", "token", "auth"}, func(s string) bool {
		return strings.Contains(name, s)
	})
}

// redactError removes secrets from the error of a store. Stores add none, but a
// client library may quote the URL. An error that is changed keeps its class and
// wraps nothing.
func redactError(err error, url string) error {
	text := err.Error()
	clean := text
	for _, s := range secrets(url) {
		clean = hide(clean, s)
	}
	if clean == text {
		return err
	}
	if _, classed := errors.AsType[*driver.Error](err); !classed {
		return errors.New(clean)
	}
	return driver.Errorf(driver.ClassOf(err), "%s", clean)
}

// shortSecret is the length below which a secret may be a part of a common word.
const shortSecret = 8

// hide replaces a secret in a text. One that is short stays within words: its absence there
// would show it.
func hide(text, secret string) string {
	if len(secret) >= shortSecret {
		return strings.ReplaceAll(text, secret, Hidden)
	}
	var b strings.Builder
	for at := 0; ; {
		i := strings.Index(text[at:], secret)
		if i < 0 {
			return b.String() + text[at:]
		}
		i += at
		end := i + len(secret)
		if withinWord(text, i) || withinWord(text, end) {
			end = i + 1
			b.WriteString(text[at:end])
		} else {
			b.WriteString(text[at:i] + Hidden)
		}
		at = end
	}
}

// withinWord reports whether the bytes before and after an index belong to one word.
func withinWord(text string, i int) bool {
	inWord := func(c byte) bool {
		return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
	}
	return i > 0 && i < len(text) && inWord(text[i-1]) && inWord(text[i])
}

// secrets returns the texts that must not appear, the longest first: the URL if
// it has a password, the password, and fragments of it that a parser may cut out.
func secrets(url string) []string {
	if !strings.Contains(Redact(url), Hidden) {
		return nil
	}
	var all []string
	add := func(s string) {
		if s == "" {
			return
		}
		all = append(all, s, strings.Trim(strconv.Quote(s), `"`))
		if plain, err := neturl.PathUnescape(s); err == nil {
			all = append(all, plain)
		}
	}
	_, rest, _ := cutScheme(url)
	_, password, after := cutUser(rest)
	add(url)
	add(password)
	for fragment := range strings.FieldsFuncSeq(password, func(r rune) bool { return strings.ContainsRune("/?#@:%[]&=", r) }) {
		if len(fragment) >= 3 { // shorter ones are found in every message
			add(fragment)
		}
	}
	_, query, _ := strings.Cut(after, "?")
	for o := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(o, "="); secretOption(name) {
			add(value)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}
