package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Open returns a driver for the cluster at a URL, with a client of its own:
//
//	etcd://[user:password@]host[:port][,host[:port]...][?option=value&...]
//
// The scheme etcds is the same over TLS, of version 1.2 or later. Without
// them, the host is localhost and the port 2379. Name every member: the client
// goes from one to the next, and past those that do not answer. A user or
// password with special characters is percent-encoded. The options are:
//
//	prefix        begins every key; none if not given
//	namespace     begins every key, before the prefix
//	ca            file of the certificates to trust, instead of the system's
//	cert, key     files of the client's certificate and its key
//	server_name   name in the servers' certificates, if it is not the hosts'
//	dial_timeout  how long the cluster may take to answer at first, 5s if not
//	              given
//
// Open blocks until a member that has a leader has answered. It returns an
// error when ctx ends first, when the URL is malformed or has an unknown
// option, when nobody answers or something that is no etcd, when there is no
// quorum, when user or password are wrong, and when the servers take fewer than
// 8 operations in a transaction. No error contains the password.
func Open(ctx context.Context, url string) (*Driver, error) {
	a, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("etcdlock: open: %w", err)
	}
	d, err := a.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: open %s: %w", strings.Join(a.hosts, ","), err)
	}
	return d, nil
}

func (a *address) open(ctx context.Context) (*Driver, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.dialTimeout,
		fmt.Errorf("no answer in %v: %w", a.dialTimeout, context.DeadlineExceeded))
	defer cancel()
	cfg := clientv3.Config{
		Endpoints:            a.hosts,
		DialTimeout:          a.dialTimeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		TLS:                  a.tls,
		Context:              context.Background(),
		Logger:               zap.NewNop(),
	}
	if a.user != "" {
		cfg.DialOptions = newUser(a.user, a.password).dial()
	}
	if a.tls != nil && a.tls.ServerName != "" {
		// gRPC checks certificates against the host of each address, whatever
		// name the configuration has.
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithAuthority(a.tls.ServerName))
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		return nil, explain(ctx, classed(ctx, err))
	}
	d, err := New(cli, &a.opts)
	if err != nil {
		cli.Close()
		return nil, err
	}
	d.opened = true
	err = a.inTurn(ctx, func(ctx context.Context) error { _, err := d.Identity(ctx); return err })
	if err == nil {
		err = a.inTurn(ctx, d.measure)
	}
	if err != nil {
		d.Close()
		return nil, explain(ctx, err)
	}
	return d, nil
}

// inTurn sends a first request. A member may accept connections and answer
// nothing, such as one that the others have lost: each has its share of the time
// until the deadline that ctx has, and then the client library takes the next. One
// share is for the member that was reached before the others, which may be twice
// the first.
func (a *address) inTurn(ctx context.Context, request func(context.Context) error) error {
	end, _ := ctx.Deadline()
	shares := len(a.hosts)
	if shares > 1 {
		shares++
	}
	for left := shares; ; left-- {
		share, stop := context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		err := request(share)
		late := share.Err() != nil
		stop()
		if left <= 1 || err == nil || !late || ctx.Err() != nil {
			return err
		}
	}
}

// explain says what the failure of a first request probably means.
func explain(ctx context.Context, err error) error {
	s := err.Error()
	switch {
	case strings.Contains(s, "server preface"), strings.Contains(s, "first record does not look like a TLS handshake"),
		strings.Contains(s, "malformed HTTP"), strings.Contains(s, "frame too large"):
		return driver.Errorf(driver.Unavailable, "it does not answer as etcd does; is it etcd, and does it expect TLS? (%w)", err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil, errors.Is(err, rpctypes.ErrNoLeader):
		return driver.Errorf(driver.Unavailable, "is it etcd, and has it a majority of its members? (%w)", err)
	case driver.ClassOf(err) == driver.Unknown:
		return driver.Errorf(driver.Unavailable, "the connection breaks; is it etcd, and does it expect TLS? (%w)", err)
	}
	return err
}
