package redislock

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/storeurl"
)

// multiAddress is the content of a URL that names several servers. The options
// are those of the address, of which each host has a copy.
type multiAddress struct {
	address
	hosts    []string // with ports
	master   string   // the name that the Sentinels have for the primary
	sentinel *address // how to reach the Sentinels
}

// parseMulti reads the URL of a cluster, or of Sentinels. kind is the part of
// its scheme after "redis" or "rediss", and port the port of a host that has
// none. Errors are as in parseURL.
func parseMulti(s, kind, port string, extra ...string) (*multiAddress, url.Values, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	base, rightKind := strings.CutSuffix(scheme, kind)
	if !ok || !rightKind || base != "redis" && base != "rediss" {
		return nil, nil, errors.New("the URL's scheme is neither redis" + kind + " nor rediss" + kind)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	user, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, hosts = authority[:at+1], authority[at+1:]
	}
	if strings.ContainsAny(user, ",") {
		return nil, nil, errors.New("the URL has a comma before the @; one in a password is percent-encoded")
	}
	path, query, _ := strings.Cut(tail, "?")
	if strings.Contains(tail, "#") {
		return nil, nil, errors.New("a # in the URL has to be percent-encoded")
	}
	q, err := storeurl.Options(query, slices.Sorted(slices.Values(slices.Concat(options, extra))))
	if err != nil {
		return nil, nil, err
	}
	mine := make(url.Values)
	for _, name := range extra {
		if q.Has(name) {
			mine[name] = q[name]
			q.Del(name)
		}
	}
	m := new(multiAddress)
	for _, host := range strings.Split(hosts, ",") {
		if host != "" && !strings.Contains(host[strings.LastIndexByte(host, ']')+1:], ":") {
			host += ":" + port
		}
		a, err := parseURL(base + "://" + user + host + "?" + q.Encode())
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(m.hosts, a.addr) {
			return nil, nil, errors.New("the URL has a host more than once")
		}
		if len(m.hosts) == 0 {
			m.address = *a
		}
		m.hosts = append(m.hosts, a.addr)
	}
	if m.master, err = url.PathUnescape(strings.TrimPrefix(path, "/")); err != nil {
		return nil, nil, errors.New("the URL's path cannot be parsed")
	}
	return m, mine, nil
}

// parseCluster reads the URL of a cluster.
func parseCluster(s string) (*multiAddress, error) {
	m, _, err := parseMulti(s, "-cluster", "6379")
	switch {
	case err != nil:
		return nil, err
	case m.master != "":
		return nil, errors.New("the URL has a path; leave it out: a cluster has the database 0 only")
	case m.address.RestartGuard != nil:
		return nil, errors.New("option restart_guard is for a single server: leave it out")
	}
	return m, nil
}

// to returns the address of another host with the same options.
func (a *address) to(host string) *address {
	other := *a
	other.addr = host
	if a.tls != nil && !a.serverName {
		other.tls = a.tls.Clone()
		other.tls.ServerName = hostOf(host)
	}
	return &other
}

// parseSentinel reads the URL of Sentinels.
func parseSentinel(s string) (*multiAddress, error) {
	m, q, err := parseMulti(s, "-sentinel", "26379", "db", "sentinel_password", "sentinel_user")
	if err != nil {
		return nil, err
	}
	if m.master == "" || strings.ContainsFunc(m.master, func(r rune) bool { return r <= ' ' || r == '/' }) {
		return nil, errors.New("the URL's path is not the name under which the Sentinels know the primary, such as /mymaster; a database is given by the option db")
	}
	if err := m.parseDB(q.Get("db")); err != nil {
		return nil, errors.New("option db is not the number of a database")
	}
	sentinel := m.address
	sentinel.user, sentinel.password, sentinel.db, sentinel.RestartGuard = q.Get("sentinel_user"), q.Get("sentinel_password"), 0, nil
	if sentinel.user != "" && sentinel.password == "" {
		return nil, errors.New("option sentinel_user needs sentinel_password")
	}
	m.sentinel = &sentinel
	return m, nil
}
