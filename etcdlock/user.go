package etcdlock

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// user puts a user's token on the requests of a client that the driver has
// opened itself, and gets a new one when the server takes it no more.
//
// The client library does this too. But it sends the old token along when it
// asks for a new one, which servers of 3.4 refuse if that has run out: such a
// client can do nothing any more after a pause (F77).
type user struct {
	name, password string
	turn           chan struct{} // held while token is looked at
	token          string
}

func newUser(name, password string) *user {
	return &user{name: name, password: password, turn: make(chan struct{}, 1)}
}

// dial returns what a client is dialled with.
func (u *user) dial() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithPerRPCCredentials(u),
		grpc.WithChainUnaryInterceptor(u.call),
		grpc.WithChainStreamInterceptor(u.stream),
	}
}

// bare marks the request for a token, which goes without one.
type bare struct{}

// current returns the token, which is empty before the first.
func (u *user) current(ctx context.Context) (string, error) {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
		return u.token, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// renew gets another token than the one that was used, unless somebody else
// just has. A server that knows no users needs none.
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

// RequireTransportSecurity implements credentials.PerRPCCredentials. Whether
// there is TLS is the URL's affair.
func (u *user) RequireTransportSecurity() bool { return false }

// call repeats a request that was refused for its token, and so was not
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

// stream opens a stream with a token of its own: the one it begins with is the
// one it lives by.
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
