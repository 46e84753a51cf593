package natslock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/storelayout"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// OpenURL opens the store of a URL, see [ParseURL].
func OpenURL(ctx context.Context, raw string) (*Driver, error) {
	servers, o, err := ParseURL(raw)
	if err != nil {
		return nil, driver.Wrap(driver.Refused, err)
	}
	return Open(ctx, servers, o)
}

// Open connects to a NATS system by the addresses of one or more of its servers,
// "nats://HOST:PORT", and creates the bucket if there is none. It waits for the
// first answer until ctx ends, or for [driver.OpenLimit] if ctx has no deadline.
func Open(ctx context.Context, servers []string, o Options) (*Driver, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, driver.Wrap(driver.Refused, fmt.Errorf("open NATS: %w", err))
	}
	if len(servers) == 0 {
		return nil, driver.Errorf(driver.Refused, "open NATS: no server is given")
	}
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, driver.OpenLimit)
		defer cancel()
	}
	d := newDriver(o)
	d.own = true
	if d.bucket.nc, err = d.connect(ctx, servers); err != nil {
		return nil, err
	}
	return d.begin(ctx)
}

// New returns a driver on a connection of the user, which it does not close. It
// creates the bucket if there is none. The connection should be made with
// nats.ReconnectBufSize(-1), so that a request fails at once while there is no
// server. The server's refusal for want of a right is known to the connection's own
// error handler alone: a request then ends with its context.
func New(ctx context.Context, nc *nats.Conn, o Options) (*Driver, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, driver.Wrap(driver.Refused, fmt.Errorf("open NATS: %w", err))
	}
	if nc == nil {
		return nil, driver.Errorf(driver.Refused, "open NATS: the connection is nil")
	}
	if err := driver.Before(ctx); err != nil {
		return nil, err
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, driver.OpenLimit)
		defer cancel()
	}
	d := newDriver(o)
	d.bucket.nc = nc
	return d.begin(ctx)
}

func newDriver(o Options) *Driver {
	d := &Driver{
		bucket:  bucket{name: o.Bucket, api: o.apiPrefix(), replicas: o.Replicas},
		opts:    o,
		stopped: make(chan struct{}),
		lanes:   make(map[string]*lane),
	}
	d.pushes.bucket, d.pushes.address = &d.bucket, rand.Text()
	again := make(chan struct{})
	d.bucket.connected.Store(&again)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// begin prepares the bucket on the connection.
func (d *Driver) begin(ctx context.Context) (*Driver, error) {
	d.events = d.bucket.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING)
	go d.followConnection()
	if err := d.prepare(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// prepare creates the bucket if there is none, and examines it.
func (d *Driver) prepare(ctx context.Context) error {
	info, err := d.bucket.streamInfo(ctx)
	if isNotFound(err) {
		if err = d.bucket.createStream(ctx); err == nil {
			info, err = d.bucket.streamInfo(ctx)
		}
	}
	if err == nil {
		err = checkStream(info)
	}
	if err != nil {
		return fmt.Errorf("open NATS bucket %s: %w", d.bucket.name, err)
	}
	e, err := d.bucket.get(ctx, layoutKey)
	if err == nil && e.data != nil {
		err = storelayout.Check("key "+layoutKey, string(e.data))
	}
	if err != nil {
		return fmt.Errorf("open NATS bucket %s: %w", d.bucket.name, err)
	}
	d.traits = traitsOf(info)
	d.notices = noticesOf(info)
	return nil
}

func traitsOf(info *jetstream.StreamInfo) driver.Traits {
	return driver.Traits{
		Scheme:           "nats",
		Fencing:          true,
		Shared:           true,
		Owner:            true,
		Fair:             true,
		Push:             true,
		Marks:            true,
		SurvivesRestart:  info.Config.Storage == jetstream.FileStorage,
		SurvivesFailover: info.Config.Replicas >= 3,
		MinTTL:           MinTTL,
		MaxTTL:           MaxTTL,
	}
}

// pingInterval is the time between two signs of life of a connection. One that is
// silent for twice that is opened anew.
const pingInterval = 5 * time.Second

// connect opens the driver's own connection. An error has the addresses in it, and
// no credentials.
func (d *Driver) connect(ctx context.Context, servers []string) (*nats.Conn, error) {
	at := make([]string, len(servers))
	for i, s := range servers {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.User != nil {
			return nil, driver.Errorf(driver.Refused, "open NATS: server %d is not an address of the form nats://HOST:PORT", i+1)
		}
		at[i] = u.Host
	}
	end, _ := ctx.Deadline()
	each := max(time.Until(end)/time.Duration(len(servers)), time.Millisecond)
	options := append([]nats.Option{
		nats.Name("holdfast"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
	}, d.opts.NATS...)
	options = append(options,
		nats.Timeout(each),
		nats.ReconnectBufSize(-1), // no request is sent later than its context
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			d.bucket.calls.refuse(err, d.pushes.subject(d.pushes.address))
		}),
	)
	type result struct {
		nc  *nats.Conn
		err error
	}
	connected := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(strings.Join(servers, ","), options...)
		connected <- result{nc, err}
	}()
	var r result
	select {
	case r = <-connected:
	case <-ctx.Done():
		go func() { // the library ends it within a moment
			if r := <-connected; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, driver.Errorf(driver.Unavailable, "open NATS at %s: no answer: %w", strings.Join(at, ","), context.Cause(ctx))
	}
	if r.err == nil {
		return r.nc, nil
	}
	class := driver.Unavailable
	if errors.Is(r.err, nats.ErrAuthorization) || errors.Is(r.err, nats.ErrAuthExpired) || errors.Is(r.err, nats.ErrAuthRevoked) || errors.Is(r.err, nats.ErrAccountAuthExpired) || errors.Is(r.err, nats.ErrSecureConnRequired) || errors.Is(r.err, nats.ErrSecureConnWanted) {
		class = driver.Refused
	}
	hint := ""
	if errors.Is(r.err, nats.ErrAuthorization) {
		hint = "the server wants a user and a password that it knows, before the host of the URL as user:password@host, or one of the options creds and nkey: "
	}
	return nil, driver.Errorf(class, "open NATS at %s: %s%w", strings.Join(at, ","), hint, r.err)
}
