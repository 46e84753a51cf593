package rueidisclient

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// Options say how to reach a server.
type Options struct {
	Addr           string
	User, Password string
	DB             int
	TLS            *tls.Config // nil for none
	DialTimeout    time.Duration
	Timeout        time.Duration // the longest time for an answer
}

// Dial connects to a server. All connections end with life, which Cut ends by
// calling end.
func Dial(life context.Context, end func(), o Options) (*Library, error) {
	opt := rueidis.ClientOption{
		InitAddress:       []string{o.Addr},
		Username:          o.User,
		Password:          o.Password,
		SelectDB:          o.DB,
		ClientName:        "holdfast",
		ClientSetInfo:     rueidis.DisableClientSetInfo, // it would need one more right
		TLSConfig:         o.TLS,
		ForceSingleClient: true,
		DisableRetry:      true, // the core repeats, with the same ticket
		DisableCache:      true,
		ConnWriteTimeout:  o.Timeout,
		// Requests that meet share one connection. All others go in the loneConn,
		// which is a connection of the pool without pipelining.
		PipelineMultiplex:     -1,
		DisableAutoPipelining: true,
		// Requests and answers are short. The client's defaults are a
		// megabyte and more for each connection.
		ReadBufferEachConn:  16 << 10,
		WriteBufferEachConn: 16 << 10,
		RingScaleEachConn:   8, // 256 places, see directLimit
	}
	opt.Dialer.Timeout = o.DialTimeout
	lone := &loneCall{ownConns: true}
	lone.doubt.over = life
	lone.doubt.dial = func(ctx context.Context) (net.Conn, error) {
		raw, err := opt.Dialer.DialContext(ctx, "tcp", o.Addr)
		if err != nil || o.TLS == nil {
			return raw, err
		}
		secure := tls.Client(raw, o.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		return secure, nil
	}
	opt.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.DialTimeout) // the handshake of TLS included
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		if ctx.Value(loneDial{}) == nil {
			lone.noteSlow() // other calls would wait for this connection, whatever their contexts
		}
		raw, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		conn := lone.add(&boundConn{
			Conn: raw, loneCall: lone, dedicated: lone.dedicating.Load() > 0, stop: context.AfterFunc(life, func() { raw.Close() }),
		})
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
	lib, err := rueidis.NewClient(opt)
	if err != nil {
		if lib != nil {
			lib.Close()
		}
		return nil, failure(err)
	}
	return &Library{client: lib, loneCall: lone, end: end}, nil
}
