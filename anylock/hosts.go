package anylock

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// checkHosts refuses a URL whose part between scheme and path is wrong for every
// store, so that all stores report the same mistake alike. It leaves empty parts
// to checkEmpty. Its errors repeat nothing that may be a password.
func checkHosts(s *store, url string) error {
	if s.local {
		return nil
	}
	_, rest, _ := strings.Cut(url, ":")
	authority, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return fmt.Errorf("anylock: the URL has no // after its scheme: write %s", s.fullForm())
	}
	if strings.Contains(rest, "#") {
		return errors.New("anylock: a # in the URL has to be written %23, in a password too")
	}
	before, query, _ := strings.Cut(authority, "?")
	if strings.Contains(query, "@") && !option().MatchString(query) {
		before, _ = cutOptions(authority)
	}
	at := strings.LastIndexByte(before, '@')
	user, hosts := before[:at+1], before[at+1:]
	if strings.Contains(hosts, "://") {
		return fmt.Errorf("anylock: the URL has a scheme in a place of a host: write %s", s.fullForm())
	}
	hosts, path, _ := strings.Cut(hosts, "/")
	switch {
	case strings.Count(user, "@") > 1 && strings.Contains(user, ","):
		return errors.New("anylock: user and password stand once, before the first host; in them a comma is written %2C and an @ %40")
	case oneHost[s.scheme] != "" && strings.Contains(hosts, ","):
		return fmt.Errorf("anylock: %s takes one host: %s", s.scheme, oneHost[s.scheme])
	case strings.HasPrefix(s.scheme, "zk") && strings.Contains(path, ","):
		return fmt.Errorf("anylock: all hosts stand before the path: write %s", s.fullForm())
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if err := checkHost(s, host); err != nil {
			return err
		}
	}
	return nil
}

// oneHost has advice for several hosts, by scheme that takes a single one.
var oneHost = map[string]string{
	"redis":   "several are those of redis-cluster, redis-sentinel or redlock",
	"rediss":  "several are those of rediss-cluster, rediss-sentinel or redlocks",
	"mysql":   "name the server that takes writes, or a proxy before several",
	"mariadb": "name the server that takes writes, or a proxy before several",
}

// checkHost refuses a host that is not of the form HOST or HOST:PORT.
func checkHost(s *store, host string) error {
	if host == "" || host[0] == ':' && strings.Count(host, ":") == 1 || hostOptional[s.scheme] && strings.Contains(host, "%") {
		return nil // an empty one, or the path of a socket
	}
	if strings.ContainsAny(host, "; \t") {
		return errors.New("anylock: the hosts of the URL are separated by commas, without spaces")
	}
	name, port, colon := host, "", false
	if address, after, ok := strings.Cut(host, "]"); ok {
		name = strings.TrimPrefix(address, "[")
		if port, colon = strings.CutPrefix(after, ":"); after != "" && !colon || name == address {
			return malformed(s)
		}
	} else if name, port, colon = strings.Cut(host, ":"); strings.ContainsAny(port, ":") {
		return fmt.Errorf("anylock: a host of the URL has two colons: write HOST:PORT, and an IPv6 address in brackets: [%s]:PORT", "::1")
	}
	if name == "" || strings.ContainsAny(name, `()[]{}<>|\^"'`) {
		return malformed(s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); colon && (err != nil || n == 0) {
		if port == "" {
			return errors.New("anylock: a host of the URL has a colon but no port: write HOST:PORT, or leave the colon out")
		}
		return errors.New("anylock: a port of the URL is not a number from 1 to 65535")
	}
	return nil
}

func malformed(s *store) error {
	return fmt.Errorf("anylock: a host of the URL is malformed: write %s", s.fullForm())
}

// fullForm returns the form of the URLs of s, spelled out also where s.form only
// refers to the row above, as the TLS variants do.
func (s *store) fullForm() string {
	i := 0
	for i < len(stores)-1 && stores[i].scheme != s.scheme {
		i++
	}
	for i > 0 && strings.Contains(stores[i].form, "... (") {
		i--
	}
	return s.scheme + strings.TrimPrefix(stores[i].form, stores[i].scheme)
}

// option matches a text that begins with an option, not with the rest of a
// password.
var option = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_]+=`) })

// cutOptions splits the rest of a URL at the question mark that begins the
// options. A question mark before the last @ belongs to a password.
func cutOptions(rest string) (before, query string) {
	end := strings.LastIndexByte(rest, '@') + 1
	before, query, _ = strings.Cut(rest[end:], "?")
	return rest[:end] + before, query
}
