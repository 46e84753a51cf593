package anylock

import (
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
)

// checkEmpty refuses a URL with an empty part. Such a URL usually comes from a
// variable that is not set, and the default that a store would take instead is a
// store that others do not use.
func checkEmpty(s *store, url string) error {
	_, rest, _ := strings.Cut(url, ":")
	before, query := cutOptions(rest)
	for o := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(o, "=")
		if name == "" || value != "" {
			continue
		}
		if plain, err := neturl.QueryUnescape(name); err == nil {
			name = plain
		}
		if len(name) > maxScheme {
			name = name[:maxScheme] + "..."
		}
		return fmt.Errorf("anylock: option %q of the URL is empty: give it a value or leave it out", name)
	}
	if s.local || !strings.HasPrefix(before, "//") {
		return nil
	}
	user, password, hosts := cutUser(before)
	if user == "" && password == "" && strings.Contains(before, "@") {
		return errors.New("anylock: user and password in the URL are empty: give them or leave out the @")
	}
	hosts, _, _ = strings.Cut(hosts, "/")
	if hosts == "" && hostOptional[s.scheme] {
		return nil
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" || strings.HasPrefix(host, ":") {
			return errors.New("anylock: the URL has an empty host: name a server, such as localhost")
		}
	}
	return nil
}

// hostOptional are the schemes whose host can stand elsewhere: in an option, or in
// a variable of libpq.
var hostOptional = map[string]bool{"postgres": true, "postgresql": true, "mysql": true, "mariadb": true}
