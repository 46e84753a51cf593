package etcdlock

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// user puts a user's token on the requests of a client that the driver has
// opened itself, and gets a new token when the server no longer accepts it.
//
// The client library does this, too. But it sends the old token along with the
// request for a new one, which servers of 3.4 refuse if the old one has
// expired: after a pause, such a client cannot do anything any more (F77).
type user struct {
	name, password string
	turn           chan struct{} // held while token is read or changed
	token          string
}

func newUser(name, password string) *user {
	return &user{name: name, password: password, turn: make(chan struct{}, 1)}
}

// dial returns the options to dial a client with.
func (u *user) dial() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithPerRPCCredentials(u),
		grpc.WithChainUnaryInterceptor(u.call),
		grpc.WithChainStreamInterceptor(u.stream),
	}
}

// bare marks the request for a token, which is sent without one.
type bare struct{}

// current returns the token, which is empty before the first request for one.
func (u *user) current(ctx context.Context) (string, error) {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
		return u.token, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// renew gets another token than used, unless another goroutine already has. A
// server without users needs none.
func (u *user) renew(ctx context.Context, cc *grpc.ClientConn, used string) error {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if u.token != used {
		return nil
	}
	resp, err := pb.NewAuthClient(cc).Authenticate(context.WithValue(ctx, bare{}, true),
		&pb.AuthenticateRequest{Name: u.name, Password: u.password})
	switch {
	case errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled):
		u.token = ""
		return nil
	case err != nil:
		return err
	}
	u.token = resp.Token
	return nil
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (u *user) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if ctx.Value(bare{}) != nil {
		return nil, nil
	}
	token, err := u.current(ctx)
	if err != nil || token == "" {
		return nil, err
	}
	return map[string]string{rpctypes.TokenFieldNameGRPC: token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. The URL
// decides about TLS.
func (u *user) RequireTransportSecurity() bool { return false }

// call repeats a request that was refused because of its token, and so was not
// carried out.
func (u *user) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if ctx.Value(bare{}) != nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	const tries = 3
	for i := 0; ; i++ {
		used, err := u.current(ctx)
		if err != nil {
			return err
		}
		err = invoke(ctx, method, req, reply, cc, opts...)
		switch rpctypes.Error(err) {
		case rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty:
		default:
			return err
		}
		if i == tries {
			return err
		}
		if err := u.renew(ctx, cc, used); err != nil {
			return err
		}
	}
}

// stream opens a stream with a fresh token, because a stream keeps the token
// that it began with.
func (u *user) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	used, err := u.current(ctx)
	if err == nil {
		err = u.renew(ctx, cc, used)
	}
	if err != nil {
		return nil, err
	}
	return open(ctx, desc, cc, method, opts...)
}
