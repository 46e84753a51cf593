// Package storeurl reads the parts that stores' URLs have alike: hosts and
// options. Its errors have no part of a URL that may be a password.
package storeurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Host returns a host with its port, which is defaultPort if s has none. The
// host is localhost if s has none.
func Host(s, defaultPort string) (string, error) {
	host, port := s, defaultPort
	if i := strings.LastIndex(s, ":"); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("a port of the URL is not a number from 1 to 65535")
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		return "", errors.New("a host of the URL is malformed; an IPv6 address goes in brackets")
	}
	if host == "" {
		host = "localhost"
	}
	if strings.ContainsAny(host, "/\\@ []") {
		return "", errors.New("a host of the URL is malformed")
	}
	return net.JoinHostPort(host, port), nil
}

// Options reads the options after the question mark. Each is one of known, and
// given once.
func Options(query string, known []string) (url.Values, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("the URL's options cannot be parsed: a percent sign is written %25, a semicolon %3B")
	}
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown option %q; there are %s", Shorten(name), strings.Join(known, ", "))
		}
		if len(q[name]) > 1 {
			return nil, fmt.Errorf("option %s is given more than once", name)
		}
	}
	return q, nil
}

// Duration sets d to the value of an option, if it is given.
func Duration(q url.Values, name string, d *time.Duration) error {
	if !q.Has(name) {
		return nil
	}
	v, err := time.ParseDuration(q.Get(name))
	if err != nil || v < time.Millisecond || v > time.Hour {
		return fmt.Errorf("option %s is not a duration from 1ms to 1h, such as 5s", name)
	}
	*d = v
	return nil
}

// Shorten returns the beginning of a mistyped word, enough to recognise it.
func Shorten(s string) string {
	const most = 20
	if len(s) <= most {
		return s
	}
	for i := most; i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i] + "..."
		}
	}
	return ""
}
