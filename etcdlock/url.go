package etcdlock

import (
	"crypto/tls"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storeurl"
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
	for s := range strings.SplitSeq(hosts, ",") {
		host, err := storeurl.Host(s, defaultPort)
		if err != nil {
			return nil, err
		}
		a.hosts = append(a.hosts, host)
	}
	q, err := storeurl.Options(query, options)
	if err != nil {
		return nil, err
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

func (a *address) parseOptions(q url.Values, secure bool) error {
	if err := storeurl.Duration(q, "dial_timeout", &a.dialTimeout); err != nil {
		return err
	}
	a.opts = Options{Prefix: q.Get("prefix"), Namespace: q.Get("namespace")}
	var err error
	a.tls, err = tlsurl.Parse(q, "etcds", secure)
	return err
}
