package lockclient

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/tlsurl"
)

// The schemes of URLs.
const (
	plainScheme  = "holdfast"
	secureScheme = "holdfasts"
	unixScheme   = "holdfast-unix"
)

const defaultPort = "7420"

// address is the content of a URL.
type address struct {
	hosts     []string // with ports; the path of the socket
	unix      bool
	tls       *tls.Config // nil for a connection without TLS
	tokenFile string
}

// parseURL reads a URL, and the files of certificates that it names. Its errors repeat no
// part of the URL that may be a secret.
func parseURL(s string) (*address, error) {
	scheme, rest, _ := strings.Cut(s, ":")
	if scheme != plainScheme && scheme != secureScheme && scheme != unixScheme {
		return nil, errors.New("the URL begins neither with holdfast:// or holdfasts:// nor with holdfast-unix: and a path")
	}
	before, query, _ := strings.Cut(rest, "?")
	if strings.Contains(rest, "#") {
		return nil, errors.New("a # in the URL has to be percent-encoded")
	}
	a := &address{unix: scheme == unixScheme}
	var err error
	if a.unix {
		err = a.parsePath(before)
	} else {
		err = a.parseHosts(strings.TrimPrefix(before, "//"), scheme)
	}
	if err != nil {
		return nil, err
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("the URL's options cannot be parsed: a percent sign is written %25, a semicolon %3B")
	}
	return a, a.parseOptions(q, scheme)
}

func (a *address) parsePath(s string) error {
	file, err := url.PathUnescape(s)
	if err != nil || !path.IsAbs(file) || strings.HasPrefix(file, "//") || strings.Contains(file, "\x00") {
		return errors.New("the URL of a socket is holdfast-unix:/PATH, with an absolute path; a percent sign in it is written %25")
	}
	a.hosts = []string{file}
	return nil
}

func (a *address) parseHosts(s, scheme string) error {
	if strings.Contains(s, "@") {
		return errors.New("the URL has a user; a lock server takes a bearer token, from the file of the option token_file")
	}
	authority, rest, _ := strings.Cut(s, "/")
	if rest != "" {
		return errors.New("the URL has a path; the servers of a store are " + scheme + "://HOST[:PORT][,HOST...]")
	}
	for h := range strings.SplitSeq(authority, ",") {
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
		if host == "" || strings.ContainsAny(host, "/\\%[] ") {
			return errors.New("a host of the URL is malformed")
		}
		if at := net.JoinHostPort(host, port); slices.Contains(a.hosts, at) {
			return errors.New("a host of the URL is there twice")
		} else {
			a.hosts = append(a.hosts, at)
		}
	}
	return nil
}

// parseOptions reads the options: token_file, and those of TLS.
func (a *address) parseOptions(q url.Values, scheme string) error {
	known := slices.Sorted(slices.Values(append(tlsurl.Names(), "token_file")))
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return fmt.Errorf("unknown option %q; there are %s", name[:min(len(name), 20)], strings.Join(known, ", "))
		case len(values) > 1:
			return fmt.Errorf("option %s is given more than once", name)
		}
	}
	a.tokenFile = q.Get("token_file")
	if a.tokenFile != "" && scheme == plainScheme && slices.ContainsFunc(a.hosts, isRemote) {
		return errors.New("option token_file: a token travels to another machine by holdfasts:// only")
	}
	var err error
	a.tls, err = tlsurl.Parse(q, secureScheme, scheme == secureScheme)
	return err
}

// isRemote reports whether a host may be another machine.
func isRemote(at string) bool {
	host, _, _ := net.SplitHostPort(at)
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
