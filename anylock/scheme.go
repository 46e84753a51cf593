package anylock

import (
	"fmt"
	"strings"
)

// storeOf returns the row of a URL, and the URL with its scheme in lower case. Its
// errors repeat the scheme and nothing else, since any other part may be a
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
	return nil, "", fmt.Errorf("anylock: unknown scheme %s: %s", scheme, suggestion(guessScheme(scheme, rest)))
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
