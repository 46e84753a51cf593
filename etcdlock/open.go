package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
	"github.com/holdfast-go/holdfast/internal/storelayout"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Open returns a driver for the cluster at a URL, with a client of its own:
//
//	etcd://[user:password@]host[:port][,host[:port]...][?option=value&...]
//
// The scheme etcds is the same over TLS, of version 1.2 or later. The host
// defaults to localhost and the port to 2379. Name every member: the client
// goes from one to the next, and past those that do not answer. A user or
// password with special characters is percent-encoded. The options are:
//
//	prefix        begins every key; none if not given
//	namespace     begins every key, before the prefix
//	ca            file of the certificates to trust, instead of the system's
//	cert, key     files of the client's certificate and its key
//	server_name   name in the servers' certificates, if it is not the hosts'
//	dial_timeout  how long the cluster may take to answer at first, 10s if
//	              not given
//
// Open blocks until a member that has a leader has answered. It returns an
// error if ctx ends first, if the URL is malformed or has an unknown option, if
// no server answers or the server is not etcd, if there is no quorum, if user
// or password are wrong, or if the servers take fewer than 8 operations in a
// transaction. No error contains the password.
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
		return nil, fmt.Errorf("etcdlock: %s: %w", strings.Join(a.hosts, ","), err)
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
	ws, creds := newTrackedConns(), insecure.NewCredentials()
	if a.tls != nil {
		creds = credentials.NewTLS(a.tls)
	}
	cfg.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(trackingCreds{creds, ws})}
	if a.user != "" {
		cfg.DialOptions = append(cfg.DialOptions, newUser(a.user, a.password).dial()...)
	}
	if a.tls != nil && a.tls.ServerName != "" {
		// gRPC checks certificates against the host of each address, despite
		// the name in the TLS configuration.
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithAuthority(a.tls.ServerName))
	}
	cli, err := clientv3.New(cfg)
	if err != nil {
		return nil, explain(ctx, classed(ctx, err))
	}
	d, err := newDriver(cli, ws, &a.opts)
	if err != nil {
		cli.Close()
		return nil, err
	}
	err = a.inTurn(ctx, d.checkLayout)
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		err = driver.Errorf(driver.Refused, "user %s may not read the keys that begin with %q; grant the right to read and write them: %w",
			a.user, d.keys.prefix, err)
	}
	if err == nil {
		err = a.inTurn(ctx, d.measureTxnLimit)
	}
	if err != nil {
		d.Close()
		return nil, explain(ctx, err)
	}
	return d, nil
}

// checkLayout refuses a prefix that a later version of Holdfast uses in another way, and
// a user who may not read all keys of this one there.
func (d *Driver) checkLayout(ctx context.Context) error {
	key := d.keys.prefix + layoutKey
	r, err := d.txn(ctx, nil, []*pb.RequestOp{
		opGet(limit(keysOnly(all(d.keys.prefix+"%", d.keys.prefix+"&")), 1)),
		opGet(get(key)),
	}, nil)
	if err != nil {
		return readOnly(err)
	}
	if found := one(r, 1); found != nil {
		return storelayout.Check("key "+key, string(found.Value))
	}
	return nil
}

// inTurn sends a first request, which changes nothing. A member may accept
// connections and answer nothing, such as one that the others have lost, and the
// client library chooses the member. So, with several members, inTurn sends the
// request again after a quarter of a second and then at doubling intervals, without
// giving up those under way: a slow cluster still has the whole time until the
// deadline of ctx. The first answer counts, whatever it says.
func (a *address) inTurn(ctx context.Context, request func(context.Context) error) error {
	if len(a.hosts) == 1 {
		return request(ctx)
	}
	attempts, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	answers := make(chan error, 1) // the first one
	retry := backoff.Backoff{First: 250 * time.Millisecond}
	for {
		group.Go(func() {
			err := request(attempts)
			select {
			case answers <- err:
			default:
			}
		})
		select {
		case err := <-answers:
			return err
		case <-ctx.Done():
			return <-answers
		case <-time.After(retry.Next()):
		}
	}
}

// explain adds the probable cause to the error of a first request.
func explain(ctx context.Context, err error) error {
	s := err.Error()
	switch {
	case strings.Contains(s, rpctypes.ErrUserEmpty.Error()):
		return driver.Errorf(driver.Refused, "the server wants a password: write it before the host of the URL, as user:password@host: %w", err)
	case strings.Contains(s, rpctypes.ErrAuthFailed.Error()):
		return driver.Errorf(driver.Refused, "the server knows no such user with this password: %w", err)
	case strings.Contains(s, "server preface"), strings.Contains(s, "first record does not look like a TLS handshake"),
		strings.Contains(s, "malformed HTTP"), strings.Contains(s, "frame too large"):
		return driver.Errorf(driver.Unavailable, "it does not answer as etcd does; is it etcd, and does it expect TLS? (%w)", err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil, errors.Is(err, rpctypes.ErrNoLeader),
		errors.Is(err, rpctypes.ErrTimeout), errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail), errors.Is(err, rpctypes.ErrTimeoutDueToConnectionLost):
		return driver.Errorf(driver.Unavailable, "is it etcd, and has it a majority of its members? (%w)", err)
	case broke(err):
		return driver.Errorf(driver.Unavailable, "the connection breaks; is it etcd, and does it expect TLS? (%w)", err)
	}
	return err
}

// broke reports whether a request that changes nothing ended with its
// connection, or for an unknown reason.
func broke(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return !ok || e.Class == driver.Unknown || e.Class == driver.Unavailable && class(e.Err) == driver.Unknown
}
