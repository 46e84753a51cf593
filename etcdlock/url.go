package etcdlock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tlsurl"
)

// address is the content of a URL.
type address struct {
	hosts          []string // with ports
	user, password string
	opts           Options
	tls            *tls.Config // nil for a connection without TLS
	dialTimeout    time.Duration
}

const defaultPort = "2379"

// options are the names of the query's options.
var options = slices.Sorted(slices.Values(append(tlsurl.Names(), "dial_timeout", "namespace", "prefix")))

// parseURL reads a URL, and the files that it names. Its errors cannot contain
// any part of a password: they repeat neither the URL nor the standard
// library's errors about it.
func parseURL(s string) (*address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return nil, errors.New("the URL does not begin with etcd:// or etcds://")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	if strings.Contains(tail, "#") {
		return nil, errors.New("a # in the URL has to be percent-encoded")
	}
	path, query, _ := strings.Cut(tail, "?")
	if path != "" && path != "/" {
		return nil, errors.New("the URL has a path; what keys begin with is given by the options namespace and prefix")
	}
	a := &address{dialTimeout: driver.OpenLimit}
	hosts := authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		hosts = authority[i+1:]
		if err := a.parseUser(authority[:i]); err != nil {
			return nil, err
		}
	}
	if err := a.parseHosts(hosts); err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("the URL's options cannot be parsed: a percent sign is written %25, a semicolon %3B")
	}
	return a, a.parseOptions(q, scheme == "etcds")
}

func (a *address) parseUser(s string) error {
	user, password, colon := strings.Cut(s, ":")
	var err1, err2 error
	a.user, err1 = url.PathUnescape(user)
	a.password, err2 = url.PathUnescape(password)
	switch {
	case err1 != nil || err2 != nil || strings.ContainsAny(s, "@:") && strings.Count(s, ":") > 1:
		return errors.New("user and password cannot be parsed; special characters in them have to be percent-encoded")
	case !colon || a.user == "" || a.password == "":
		return errors.New("the URL's user needs a name and a password: etcd://user:password@host")
	}
	return nil
}

func (a *address) parseHosts(s string) error {
	for h := range strings.SplitSeq(s, ",") {
		host, port := h, defaultPort
		if i := strings.LastIndex(h, ":"); i >= 0 && !strings.HasSuffix(h, "]") {
			host, port = h[:i], h[i+1:]
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("a port of the URL is not a number from 1 to 65535")
		}
		if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
			host = host[1 : len(host)-1]
		} else if strings.Contains(host, ":") {
			return errors.New("a host of the URL is malformed; an IPv6 address goes in brackets")
		}
		if host == "" {
			host = "localhost"
		}
		if strings.ContainsAny(host, "/\\@ []") {
			return errors.New("a host of the URL is malformed")
		}
		a.hosts = append(a.hosts, net.JoinHostPort(host, port))
	}
	return nil
}

func (a *address) parseOptions(q url.Values, secure bool) error {
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !slices.Contains(options, name) {
			return fmt.Errorf("unknown option %q; there are %s", shorten(name), strings.Join(options, ", "))
		}
		if len(q[name]) > 1 {
			return fmt.Errorf("option %s is given more than once", name)
		}
	}
	if q.Has("dial_timeout") {
		v, err := time.ParseDuration(q.Get("dial_timeout"))
		if err != nil || v < time.Millisecond || v > time.Hour {
			return errors.New("option dial_timeout is not a duration from 1ms to 1h, such as 5s")
		}
		a.dialTimeout = v
	}
	a.opts = Options{Prefix: q.Get("prefix"), Namespace: q.Get("namespace")}
	var err error
	a.tls, err = tlsurl.Parse(q, "etcds", secure)
	return err
}

// shorten keeps a mistyped name recognisable, and no more of it.
func shorten(s string) string {
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
