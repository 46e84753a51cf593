package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// Open returns a driver for the server at a URL, with connections of its own:
//
//	redis://[user[:password]@][host][:port][/database][?option=value&...]
//
// The scheme rediss is the same over TLS, of version 1.2 or later. Without
// them, the host is localhost, the port 6379, the database 0 and the user
// "default". A password that contains / ? # % @ or : is percent-encoded. The
// options are:
//
//	prefix        begins the keys of all lines, see Options; empty for none
//	ca            file of the certificates to trust, instead of the system's
//	cert, key     files of the client's certificate and its key
//	server_name   name in the server's certificate, if it is not the host's
//	dial_timeout  how long connecting may take, 5s if not given
//	eviction      report (if not given) or refuse: what becomes of a server that
//	              drops keys when memory is short, see Options
//	min_replicas  how many replicas must have a grant before it is shown, and
//	min_replicas_timeout
//	              how long they have for that, 1s if not given; see Options
//	restart_guard on, or the longest TTL that anybody uses: a server that came
//	              back without its data grants nothing for that long, see
//	              Options; off if not given
//	timeout       how long an answer may take before the connection is given
//	              up for a new one, 5s if not given
//
// Open blocks until the server has said what it is. It returns an error when
// ctx ends first, when the URL is malformed or has an unknown option, and in
// the cases of [New]. No error contains the password.
func Open(ctx context.Context, url string) (*Driver, error) {
	u, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("redislock: open: %w", err)
	}
	life, end := context.WithCancel(context.Background())
	opening := context.AfterFunc(ctx, end)
	d, err := u.open(ctx, life, end)
	if !opening() && err == nil {
		d.Close()
		err = ended(ctx)
	}
	if err != nil {
		end()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = ended(ctx)
		}
		return nil, fmt.Errorf("redislock: open %s: %w", u.addr, err)
	}
	return d, nil
}

// open makes a client and a driver on it.
func (a *address) open(ctx, life context.Context, end func()) (*Driver, error) {
	client, watch, err := a.connect(life)
	if err != nil {
		return nil, err
	}
	return open(ctx, setup{client: client, alone: watch, end: end, prefix: a.prefix, guard: a.guard, confirms: a.confirms, picky: a.picky})
}

// connect makes the client, all of whose connections end with life.
func (a *address) connect(life context.Context) (rueidis.Client, *alone, error) {
	opt := rueidis.ClientOption{
		InitAddress:       []string{a.addr},
		Username:          a.user,
		Password:          a.password,
		SelectDB:          a.db,
		ClientName:        "holdfast",
		ClientSetInfo:     rueidis.DisableClientSetInfo, // a right more that users would need
		TLSConfig:         a.tls,
		ForceSingleClient: true,
		DisableRetry:      true, // the core repeats, with the same ticket
		DisableCache:      true,
		ConnWriteTimeout:  a.timeout,
		// One shared connection keeps requests in their order: a join that was
		// given up cannot arrive after the leave that follows it, unless the
		// connection breaks.
		PipelineMultiplex: -1,
		// Requests and answers are short. The client's defaults are a
		// megabyte and more for each connection.
		ReadBufferEachConn:  16 << 10,
		WriteBufferEachConn: 16 << 10,
		RingScaleEachConn:   8, // 256 places, see room
	}
	opt.Dialer.Timeout = a.dialTimeout
	watch := &alone{tied: true}
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, a.dialTimeout) // the handshake of TLS included
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		watch.found() // others would wait for this connection, whatever their contexts
		if caller := watch.context(); caller != nil {
			defer context.AfterFunc(caller, cancel)()
		}
		raw, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		conn := &mortal{Conn: raw, alone: watch, stop: context.AfterFunc(life, func() { raw.Close() })}
		if config == nil {
			return &measured{Conn: conn}, nil
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return &measured{Conn: secure}, nil
	}
	client, err := rueidis.NewClient(opt)
	if err != nil {
		if client != nil {
			client.Close()
		}
		return nil, nil, explain(err)
	}
	return client, watch, nil
}

// explain says what the failure of a first connection probably means.
func explain(err error) error {
	if re, ok := errors.AsType[*rueidis.RedisError](err); ok {
		text := re.Error()
		if strings.Contains(text, "HELLO") || strings.Contains(text, "unknown command") {
			return driver.Errorf(driver.Refused, "the server does not know HELLO, it is older than Redis 6.2: %w", err)
		}
		return classify(err)
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		return classify(err)
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok && oe.Op == "dial" {
		return driver.Errorf(driver.Unavailable, "cannot connect: %w", err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return driver.Errorf(driver.Refused, "the server's certificate is not trusted: %w", err)
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return driver.Errorf(driver.Unavailable, "it accepts connections but does not answer in time; does it speak Redis, and is TLS as it expects? (%w)", err)
	}
	return driver.Errorf(driver.Unavailable, "it does not answer as a Redis server does; is it one, and does it expect TLS? (%w)", err)
}

// greet asks the server what it is, by HELLO, which needs no rights.
func (d *Driver) greet(ctx context.Context) error {
	r, err := beside(ctx, d, func(c link.Conn) (link.Reply, error) { return c.Do("HELLO") })
	if err != nil {
		return fmt.Errorf("asking the server what it is: %w", err)
	}
	list, _ := r.List()
	fields := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].Text()
		fields[name], _ = list[i+1].Text() // some are no texts, and not asked for
	}
	d.version = fields["version"]
	if d.lines.sharded && !atLeast(d.version, 7, 0) {
		d.asks.Store(true)
	}
	return judge(fields["server"], d.version, fields["mode"], fields["role"], d.lines.sharded)
}

// judge says what is wrong with a server that calls itself so.
func judge(server, version, mode, role string, cluster bool) error {
	switch {
	case mode == "sentinel":
		return driver.Errorf(driver.Refused, "the server is a Sentinel, not a Redis server; its URL begins with redis-sentinel")
	case mode == "cluster" && !cluster:
		return driver.Errorf(driver.Refused, "the server is a node of a cluster, not a standalone server; its URL begins with redis-cluster")
	case mode != "cluster" && cluster:
		return driver.Errorf(driver.Refused, "the server is no node of a cluster")
	}
	// Valkey counts its own versions, the first of which is 7.2.
	if !atLeast(version, 6, 2) {
		return driver.Errorf(driver.Refused, "the server is %s %s, and at least 6.2 is needed", server, version)
	}
	if role != "master" && !cluster { // in a cluster, it names the primary
		return driver.Errorf(driver.Unavailable, "the server is a %s, and locks need the primary", role)
	}
	return nil
}

// atLeast compares a version like "7.0.15"; one that cannot be read passes.
func atLeast(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err1 != nil || err2 != nil || x > major || x == major && y >= minor
}

const (
	defaultDialTimeout = 5 * time.Second
	defaultTimeout     = 5 * time.Second
)
