package redislock

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

	"github.com/holdfast-go/holdfast/internal/storeurl"
	"github.com/holdfast-go/holdfast/internal/tlsurl"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
)

// address is the content of a URL.
type address struct {
	addr           string
	user, password string
	db             int
	tls            *tls.Config // nil for none
	serverName     bool        // tls has a name other than the host's
	dialTimeout    time.Duration
	timeout        time.Duration
	server.Settings
}

// options are the names of the query's options.
var options = slices.Sorted(slices.Values(append(tlsurl.Names(), "dial_timeout", "eviction", "min_replicas", "min_replicas_timeout", "prefix", "restart_guard", "timeout")))

// parseURL reads a URL, and the files that it names. Its errors can contain no
// part of a password: they repeat neither the URL nor the standard library's
// error about it.
func parseURL(s string) (*address, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("the URL cannot be parsed; a password with special characters has to be percent-encoded")
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, errors.New("the URL's scheme is neither redis nor rediss")
	}
	if u.Opaque != "" || u.Fragment != "" || strings.Contains(s, "#") {
		return nil, errors.New("the URL is not of the form redis://user:password@host:port/database?option=value; a # in it has to be percent-encoded")
	}
	a := &address{Settings: server.Settings{Prefix: DefaultPrefix}, dialTimeout: defaultDialTimeout, timeout: defaultTimeout}
	if err := a.parseHost(u); err != nil {
		return nil, err
	}
	if u.User != nil {
		a.user = u.User.Username()
		var colon bool
		if a.password, colon = u.User.Password(); !colon {
			return nil, errors.New("the URL has a user without a password; a password alone is written redis://:password@host, and an empty one redis://user:@host")
		}
	}
	if err := a.parseDB(u.Path); err != nil {
		return nil, err
	}
	q, err := storeurl.Options(u.RawQuery, options)
	if err != nil {
		return nil, err
	}
	return a, a.parseOptions(q, u.Scheme == "rediss")
}

func (a *address) parseHost(u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "localhost"
	}
	if strings.ContainsAny(host, "/\\@ ,") {
		return errors.New("the URL's host is malformed")
	}
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return errors.New("the URL has a colon but no port")
		}
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("the URL's port is not a number from 1 to 65535")
	}
	a.addr = net.JoinHostPort(host, port)
	return nil
}

func (a *address) parseDB(path string) error {
	text := strings.TrimPrefix(path, "/")
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("the URL's path is not the number of a database, such as /0")
	}
	a.db = int(n)
	return nil
}

func (a *address) parseOptions(q url.Values, secure bool) error {
	for name, d := range map[string]*time.Duration{"dial_timeout": &a.dialTimeout, "timeout": &a.timeout} {
		if err := storeurl.Duration(q, name, d); err != nil {
			return err
		}
	}
	if q.Has("prefix") {
		o := &Options{Prefix: q.Get("prefix"), NoPrefix: q.Get("prefix") == ""}
		p, err := o.prefix()
		if err != nil {
			return errors.New("option prefix is too long or not valid UTF-8")
		}
		a.Prefix = p
	}
	switch q.Get("eviction") {
	case "refuse":
		a.RefuseEviction = true
	case "", "report":
	default:
		return errors.New("option eviction is neither report nor refuse")
	}
	if err := a.parseReplicas(q); err != nil {
		return err
	}
	if q.Has("restart_guard") {
		on, longest, err := parseRestartGuard(q.Get("restart_guard"))
		if err != nil {
			return err
		}
		if on {
			a.RestartGuard = &server.GuardSettings{Longest: longest, Refusal: ErrRestarted}
		}
	}
	return a.parseTLS(q, secure)
}

func (a *address) parseReplicas(q url.Values) error {
	within := min(server.DefaultWithin, a.timeout/2)
	if q.Has("min_replicas_timeout") {
		d, err := time.ParseDuration(q.Get("min_replicas_timeout"))
		if err != nil || d < time.Millisecond || d > a.timeout/2 || !q.Has("min_replicas") {
			return errors.New("option min_replicas_timeout is not a duration from 1ms to half the option timeout, or without min_replicas")
		}
		within = d
	}
	if q.Has("min_replicas") {
		n, err := strconv.Atoi(q.Get("min_replicas"))
		if err != nil || n < 0 || n > maxReplicas {
			return fmt.Errorf("option min_replicas is not a number from 0 to %d", maxReplicas)
		}
		a.Confirms = server.NewConfirmation(n, within, ErrUnconfirmed)
	}
	return nil
}

// parseRestartGuard reads the URL's option: on, off, or the longest TTL in use.
func parseRestartGuard(text string) (on bool, longest time.Duration, err error) {
	switch text {
	case "on":
		return true, 0, nil
	case "off":
		return false, 0, nil
	}
	longest, err = time.ParseDuration(text)
	if err != nil || longest < MinTTL || longest > MaxTTL {
		return false, 0, errors.New("option restart_guard is neither on nor off, nor the longest TTL in use, such as 30s")
	}
	return true, longest, nil
}

func (a *address) parseTLS(q url.Values, secure bool) (err error) {
	a.tls, err = tlsurl.Parse(q, "rediss", secure)
	if a.serverName = q.Has("server_name"); a.tls != nil && !a.serverName {
		a.tls.ServerName = hostOf(a.addr)
	}
	return err
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}
