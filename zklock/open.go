package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tlsurl"
)

// DefaultDialTimeout is the time that Open waits for the servers when its
// context sets no earlier end.
const DefaultDialTimeout = driver.OpenLimit

// Open returns a driver for the servers at a URL, with connections of its own:
//
//	zk://[user[:password]@]host[:port][,host[:port]...][/chroot][?option=value&...]
//
// The scheme zks is the same over TLS. The port defaults to 2181 (zks: 2281).
// Without a path there is no chroot; a chroot has to exist. User and password
// are sent with the scheme "digest". Characters that are special in a URL are
// percent-encoded in them. The options are:
//
//	root          path of the queues below the chroot, see Options.Root
//	acl           "open": everybody may use and break the locks; "creator":
//	              only this user, which is the default when there is a user
//	tick          tickTime of the servers, see Options.Tick
//	ca            file of the certificates to trust, instead of the system's
//	cert, key     files of the client's certificate and its key
//	server_name   name in the servers' certificates, if it is not the host's
//	dial_timeout  how long Open waits for a server, 10s if not given
//
// Open blocks until a server has made a session and the driver has seen the
// chroot. It returns an error when ctx or the time-out ends first, when the URL
// is malformed or has an unknown option, when the chroot does not exist, and
// when the user has no right to read it. No error contains the password.
func Open(ctx context.Context, address string) (*Driver, error) {
	servers, opts, limit, err := parseURL(address)
	if err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no session within %v", limit))
	defer cancel()
	d, err := connect(ctx, servers, opts)
	if err != nil && opts.User == "" && (errors.Is(err, zk.ErrNoAuth) || usersOnly(err)) {
		err = driver.Errorf(driver.Refused, "the server wants a password: write it before the host of the URL, as user:password@host; or an ACL names others alone: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("zklock: %s: %w", strings.Join(servers, ","), err)
	}
	return d, nil
}

// Connect is Open without a URL: servers are hosts with ports. Connect blocks
// like Open, for as long as ctx allows.
func Connect(ctx context.Context, servers []string, opts *Options) (*Driver, error) {
	if len(servers) == 0 {
		return nil, errors.New("zklock: there are no servers to connect to")
	}
	d, err := connect(ctx, zk.FormatServers(servers), opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: connect to %s: %w", strings.Join(servers, ","), err)
	}
	return d, nil
}

// New returns a driver on a connection that the user has made with a Tap. The
// driver never closes the connection. All tickets live in the connection's one
// session, so the TTL follows from the session's time-out and Traits allow no
// other: a client without WithTTL has this TTL. Without Options.Tick the driver
// assumes that the servers' tickTime is an eighth of the session's time-out, at
// most 2 s.
//
// New blocks until there is a session and the driver has seen the chroot. It
// returns the errors of [Open].
func New(ctx context.Context, conn *zk.Conn, tap *Tap, opts *Options) (*Driver, error) {
	if conn == nil || tap == nil {
		return nil, errors.New("zklock: the connection or its Tap is nil")
	}
	d, err := newDriver(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	if d.opts.User != "" || d.opts.Dial != nil {
		return nil, errors.New("zklock: user and dialer belong to the connection, not to the options of New")
	}
	if err := d.adopt(ctx, conn, tap); err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	return d, nil
}

func (d *Driver) adopt(ctx context.Context, conn *zk.Conn, tap *Tap) error {
	s := newSession(d, tap)
	s.conn, s.users = conn, true
	close(s.known)
	d.only = s
	// An event between listen and s.event does no harm: s.event only repeats
	// it.
	if state := tap.listen(s.event); state == zk.StateHasSession {
		s.event(zk.Event{Type: zk.EventSession, State: state})
	}
	if err := s.ready(ctx); err != nil {
		tap.listen(nil)
		return err
	}
	s.mu.Lock()
	timeout := s.timeout
	s.mu.Unlock()
	if timeout == 0 {
		tap.listen(nil)
		return errors.New("the connection was not made with this Tap's Dial")
	}
	if d.tick = d.opts.Tick; d.tick == 0 {
		d.tick = min(timeout/8, usualTick)
	}
	d.traits = traitsOf(d.tick, timeout, timeout)
	d.traits.MinTTL = d.traits.MaxTTL * 24 / 25
	s.serve()
	if err := (tree{s}).readServer(ctx); err != nil {
		d.Close()
		return err
	}
	return nil
}

// connect opens a driver with connections of its own. Two short sessions find
// out which time-outs the servers grant.
func connect(ctx context.Context, servers []string, opts *Options) (*Driver, error) {
	d, err := newDriver(opts)
	if err != nil {
		return nil, err
	}
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	d.servers = servers
	asks := []time.Duration{time.Second, maxTimeout}
	if t := d.opts.Tick; t > 0 {
		asks[0] = min(max(2*t, 200*time.Millisecond), time.Second)
	}
	granted := make([]time.Duration, len(asks))
	errs := make([]error, len(asks))
	inParallel(len(asks), func(i int) {
		s, err := d.dial(asks[i])
		if err != nil {
			errs[i] = err
			return
		}
		if errs[i] = s.ready(ctx); errs[i] == nil {
			_, granted[i], _ = s.tap.granted()
			if i > 0 { // the session with the longest time-out
				errs[i] = tree{s}.readServer(ctx)
			}
		}
		s.close(false)
	})
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	if d.tick = d.opts.Tick; d.tick == 0 {
		d.tick = granted[0] / 2
	}
	d.traits = traitsOf(d.tick, granted[0], granted[1])
	if d.traits.MaxTTL < d.traits.MinTTL {
		return nil, driver.Errorf(driver.Refused, "the servers grant session time-outs from %v to %v, which leaves no TTL with a tick of %v",
			granted[0], granted[1], d.tick)
	}
	return d, nil
}

// maxTimeout is the longest time-out that a client can ask for in the protocol.
const maxTimeout = (1<<31 - 1) * time.Millisecond

func parseURL(address string) (servers []string, opts *Options, limit time.Duration, err error) {
	u, err := url.Parse(address)
	if err != nil {
		// The error of url.Parse would repeat the URL with its password.
		return nil, nil, 0, errors.New("the URL cannot be parsed; a password with special characters has to be percent-encoded")
	}
	port := "2181"
	switch u.Scheme {
	case "zk":
	case "zks":
		port = "2281"
	default:
		return nil, nil, 0, fmt.Errorf("the scheme is %q, want zk or zks", u.Scheme)
	}
	for _, host := range strings.Split(u.Host, ",") {
		if host == "" {
			return nil, nil, 0, errors.New("the URL has an empty host")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		servers = append(servers, host)
	}
	opts, limit = &Options{Chroot: u.Path}, DefaultDialTimeout
	if u.User != nil {
		opts.User = u.User.Username()
		var colon bool
		if opts.Password, colon = u.User.Password(); opts.User == "" || !colon {
			return nil, nil, 0, errors.New("the URL's user needs a name and a password: zk://user:password@host")
		}
	}
	if u.Fragment != "" {
		return nil, nil, 0, errors.New("the URL has a fragment; write # as %23")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, 0, errors.New("the URL's options cannot be parsed: a percent sign is written %25, a semicolon %3B")
	}
	for key, values := range query {
		if len(values) != 1 {
			return nil, nil, 0, fmt.Errorf("the option %s is given %d times", key, len(values))
		}
		v := values[0]
		switch key {
		case "root":
			opts.Root = v
		case "acl":
			if v != "open" && v != "creator" {
				return nil, nil, 0, fmt.Errorf("acl is %q, want open or creator", v)
			}
			if opts.Open = v == "open"; !opts.Open && opts.User == "" {
				return nil, nil, 0, errors.New("acl is creator, but the URL has no user")
			}
		case "tick":
			opts.Tick, err = positive(key, v)
		case "dial_timeout":
			limit, err = positive(key, v)
		default:
			if !slices.Contains(tlsurl.Names(), key) {
				return nil, nil, 0, fmt.Errorf("unknown option %q; there are acl, ca, cert, dial_timeout, key, root, server_name, tick", key)
			}
		}
		if err != nil {
			return nil, nil, 0, err
		}
	}
	config, err := tlsurl.Parse(query, "zks", u.Scheme == "zks")
	if err != nil {
		return nil, nil, 0, err
	}
	if config != nil {
		opts.Dial = tlsDialer(config)
	}
	return servers, opts, limit, nil
}

func positive(key, v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s is %q, want a time such as 2s", key, v)
	}
	return d, nil
}
