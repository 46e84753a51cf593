package anylock

import (
	"fmt"
	"strings"
)

// storeOf returns the row of a URL, and the URL with its scheme in lower case. Its
// errors repeat at most what is surely a scheme, since anything else may be a
// password.
func storeOf(url string) (*store, string, error) {
	scheme, rest, ok := cutScheme(url)
	if !ok {
		return nil, "", fmt.Errorf("anylock: the store is not a URL: %s", suggestion(guessScheme("", url)))
	}
	for i := range stores {
		if s := &stores[i]; s.scheme == scheme {
			return s, scheme + ":" + rest, nil
		}
	}
	shown := ""
	if surelyScheme(scheme, rest) {
		shown = " " + scheme
	}
	return nil, "", fmt.Errorf("anylock: unknown scheme%s: %s", shown, suggestion(guessScheme(scheme, rest)))
}

// surelyScheme reports whether the text before the first colon of a URL is meant as
// a scheme: two slashes follow, or others use it as one. The text before any other
// colon may be a user, or the beginning of a password.
func surelyScheme(scheme, rest string) bool {
	return strings.HasPrefix(rest, "//") || otherNames[scheme] != ""
}

// maxScheme keeps texts that are no schemes, and may be passwords, out of messages.
const maxScheme = 20

// cutScheme splits a URL at its first colon. A scheme begins with a letter and
// goes on with letters, digits, '+', '-' and '.'.
func cutScheme(url string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(url, ":")
	if !ok || scheme == "" || len(scheme) > maxScheme {
		return "", "", false
	}
	scheme = strings.ToLower(scheme)
	for i, c := range scheme {
		if c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.') {
			continue
		}
		return "", "", false
	}
	return scheme, rest, true
}
