package redislock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/rueidisclient"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Open returns a driver for the server at a URL, with connections of its own:
//
//	redis://[user[:password]@][host][:port][/database][?option=value&...]
//
// The scheme rediss is the same over TLS, of version 1.2 or later. The
// defaults are the host localhost, the port 6379, the database 0 and the user
// "default". A password that contains / ? # % @ or : is percent-encoded. The
// options are:
//
//	prefix        begins the keys of all queues, see Options; empty for none
//	ca            file of the certificates to trust, instead of the system's
//	cert, key     files of the client's certificate and its key
//	server_name   name in the server's certificate, if it is not the host's
//	dial_timeout  longest time for connecting, 5s if not given
//	eviction      report (if not given) or refuse a server that evicts keys when
//	              memory is short, see Options
//	min_replicas  number of replicas that must have a grant before it is shown,
//	              see Options
//	min_replicas_timeout
//	              longest time for that, at most half of timeout; 1s, or that
//	              half if it is less, if not given; see Options
//	restart_guard on, or the longest TTL of any client: a server that restarted
//	              without its data grants nothing for that long, see Options;
//	              off if not given
//	timeout       longest time for an answer before the connection is replaced
//	              by a new one, 5s if not given
//
// Open blocks until the server has given its version and role. It returns an
// error when ctx ends first, when the URL is malformed or has an unknown
// option, and in the cases of [New]. No error contains the password.
func Open(ctx context.Context, url string) (*Driver, error) {
	u, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("redislock: open: %w", err)
	}
	d, err := u.dial(ctx, func(l client.Library) (*server.Driver, error) {
		return server.Open(ctx, server.Setup{Settings: u.Settings, Lib: l})
	})
	if err != nil {
		return nil, openErr(ctx, u.addr, err)
	}
	return &Driver{d}, nil
}

// New returns a driver on client, which the caller keeps, and closes after the
// driver. o may be nil.
//
// The client has to be for one server, not for a Sentinel or a cluster. It is
// best made with DisableRetry: repeated requests do no harm, but late ones are
// of no use. The client's ConnWriteTimeout bounds how long the driver takes to
// notice a dead connection.
//
// New asks the server for its version and role. It returns an error at once,
// or after five seconds, when the server cannot be reached, refuses the user,
// is older than 6.2, or is a replica, a Sentinel or a node of a cluster.
func New(client rueidis.Client, o *Options) (*Driver, error) {
	if client == nil {
		return nil, errors.New("redislock: client is nil")
	}
	if mode := client.Mode(); mode != rueidis.ClientModeStandalone {
		return nil, fmt.Errorf("redislock: the client is for a %s, not for one server", mode)
	}
	return Via(rueidisclient.Of(client), o)
}

// Via returns a driver on a client library other than rueidis. It is for the
// packages below this one, such as goredis, which offer it to users.
func Via(l client.Library, o *Options) (*Driver, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), server.OpenLimit)
	defer cancel()
	d, err := server.Open(ctx, server.Setup{Settings: s, Lib: l})
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	return &Driver{d}, nil
}

// openErr returns the error of an opening that failed: that of its context, if
// the context has ended.
func openErr(ctx context.Context, at string, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = client.Ended(ctx)
	}
	return fmt.Errorf("redislock: %s: %w", at, err)
}

// dial connects to the server and calls open to make a driver. If ctx ends
// before open has returned, the connections end, too.
func (a *address) dial(ctx context.Context, open func(client.Library) (*server.Driver, error)) (d *server.Driver, err error) {
	life, end := context.WithCancel(context.Background())
	opening := context.AfterFunc(ctx, end)
	l, err := rueidisclient.Dial(life, end, rueidisclient.Options{
		Addr: a.addr, User: a.user, Password: a.password, DB: a.db, TLS: a.tls, DialTimeout: a.dialTimeout, Timeout: a.timeout,
	})
	if err != nil {
		err = explain(err)
	} else {
		d, err = open(l)
	}
	if !opening() && err == nil {
		d.Close()
		err = &driver.Error{Class: driver.Unavailable, Err: context.Cause(ctx)}
	}
	if err != nil {
		end()
		return nil, err
	}
	return d, nil
}

// explain adds the probable cause to the error of a first connection.
func explain(err error) error {
	if text := wire.AnswerOf(err); text != "" {
		switch word, _, _ := strings.Cut(text, " "); {
		case word == "NOAUTH":
			return driver.Errorf(driver.Refused, "the server wants a password: write it before the host of the URL, as user:password@host or :password@host: %w", err)
		case word == "WRONGPASS":
			return driver.Errorf(driver.Refused, "the server knows no such user with this password: %w", err)
		case strings.Contains(strings.ToLower(text), "unknown command"):
			return driver.Errorf(driver.Refused, "server is too old: it does not know HELLO, which Redis 6.2 has: %w", err)
		}
		return server.Classify(err)
	}
	if _, ok := errors.AsType[*client.Refusal](err); ok {
		return server.Classify(err)
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok && oe.Op == "dial" {
		return driver.Errorf(driver.Unavailable, "cannot connect: %w", err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return driver.Errorf(driver.Refused, "the server's certificate is not trusted: %w", err)
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return driver.Errorf(driver.Unavailable, "connected, but no reply in time: check that it is Redis, and whether it expects TLS: %w", err)
	}
	return driver.Errorf(driver.Unavailable, "connected, but no Redis reply: check that it is Redis, and whether it expects TLS: %w", err)
}

const (
	defaultDialTimeout = 5 * time.Second
	defaultTimeout     = 5 * time.Second
)
