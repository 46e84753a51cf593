// Package httpfence carries tokens over HTTP, and refuses old tokens there.
//
// The client's side is a Transport. It adds a header with the token of the hold
// that a request is made under. The server's side is a Middleware. It refuses a
// request with an old token before the handler sees it, and lets no other token
// in while the handler works.
//
// The middleware remembers tokens in memory. That protects data in the memory
// of one server. If several servers write to one database, or the data outlive
// the server, check the token where the data are: take it with FromRequest and
// pass it to sqlfence or redisfence, in the same transaction or script as the
// write.
package httpfence

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/holdfast-go/holdfast/fence"
)

// The headers of a request. In the answer to a refused request, Header and
// OwnerHeader have the latest token.
const (
	Header       = "Holdfast-Token"        // the number, in decimal digits
	OwnerHeader  = "Holdfast-Token-Owner"  // the owner, percent-encoded; absent for none
	SharedHeader = "Holdfast-Token-Shared" // "true" for a reader's token, absent otherwise
)

// The answers of a Middleware. A server with a check of its own can send them
// with Refuse.
const (
	StatusStale   = http.StatusPreconditionFailed   // 412: a later holder has written
	StatusTwin    = http.StatusConflict             // 409: another owner has used this number
	StatusMissing = http.StatusPreconditionRequired // 428: the request has no token
)

// Set adds the token to a request's headers.
func Set(h http.Header, t fence.Token) {
	h.Set(Header, strconv.FormatUint(t.Value, 10))
	h.Del(OwnerHeader)
	h.Del(SharedHeader)
	if t.Owner != "" {
		h.Set(OwnerHeader, url.PathEscape(t.Owner))
	}
	if t.Shared {
		h.Set(SharedHeader, "true")
	}
}

// FromRequest returns the token of a request. It returns fence.ErrNoToken if
// there is none, and another error if the headers are malformed or occur twice,
// which this package never sends.
func FromRequest(r *http.Request) (fence.Token, error) { return get(r.Header) }

func get(h http.Header) (t fence.Token, err error) {
	if len(h.Values(Header)) == 0 {
		return t, fence.ErrNoToken
	}
	for _, name := range []string{Header, OwnerHeader, SharedHeader} {
		if len(h.Values(name)) > 1 {
			return t, errors.New("httpfence: the header " + name + " is there more than once")
		}
	}
	if t.Value, err = strconv.ParseUint(h.Get(Header), 10, 64); err != nil {
		return fence.Token{}, errors.New("httpfence: the header " + Header + " is not a number")
	}
	if t.Owner, err = url.PathUnescape(h.Get(OwnerHeader)); err != nil {
		return fence.Token{}, errors.New("httpfence: the header " + OwnerHeader + " is not percent-encoded")
	}
	switch h.Get(SharedHeader) {
	case "":
	case "true":
		t.Shared = true
	default:
		return fence.Token{}, errors.New("httpfence: the header " + SharedHeader + " is not true")
	}
	if t.Value == 0 {
		return fence.Token{}, fence.ErrNoToken
	}
	return t, nil
}

// Transport sends requests with a token.
type Transport struct {
	// Token returns the token of the hold that a request is made under. It
	// usually finds the hold by the request's context:
	//
	//	func(r *http.Request) fence.Token {
	//		return fence.Token{Value: holdfast.Token(r.Context(), "invoice/42")}
	//	}
	//
	// A request for which it returns a zero Value is not sent, and fails with
	// fence.ErrNoToken.
	Token func(*http.Request) fence.Token

	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A refusal is an ordinary answer; Err
// reads it.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	token := t.Token(r)
	if token.Value == 0 {
		if r.Body != nil {
			r.Body.Close() // every RoundTripper must close the body
		}
		return nil, fence.ErrNoToken
	}
	r = r.Clone(r.Context())
	Set(r.Header, token)
	return base.RoundTrip(r)
}

// Err returns a *fence.StaleError if the server has refused the token of the
// request, and nil for every other answer. It does not read the body.
func Err(resp *http.Response) error {
	if resp.StatusCode != StatusStale && resp.StatusCode != StatusTwin {
		return nil
	}
	highest, err := get(resp.Header)
	if err != nil || resp.Request == nil {
		return nil // another condition has failed
	}
	given, err := FromRequest(resp.Request)
	if err != nil {
		return nil
	}
	return &fence.StaleError{Given: given, Highest: highest}
}

// Middleware passes a request to a handler if it has the latest token for the
// thing that it writes to, one request at a time. It answers the other requests
// itself: StatusStale, StatusTwin, StatusMissing, or 400 for malformed headers.
// name returns the name of the thing that a request writes to. Methods that
// only read (GET, HEAD, OPTIONS) pass without a check. While a handler runs,
// requests for the same name wait until their contexts end; those with shared
// tokens run together.
func Middleware(guards *fence.Guards, name func(*http.Request) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodGet, http.MethodHead, http.MethodOptions:
				next.ServeHTTP(w, r)
				return
			}
			t, err := FromRequest(r)
			if err == nil {
				err = guards.Do(r.Context(), name(r), t, func() error {
					next.ServeHTTP(w, r)
					return nil
				})
			}
			if err != nil && r.Context().Err() != nil && !errors.Is(err, fence.ErrStale) {
				err = r.Context().Err() // whatever the cause of its end
			}
			if err != nil {
				Refuse(w, err)
			}
		})
	}
}

// Refuse answers a request with the error of a guard, or of FromRequest:
// StatusStale or StatusTwin with the latest token in the headers, StatusMissing
// for fence.ErrNoToken, 503 if the request's context ended, and 400 otherwise.
func Refuse(w http.ResponseWriter, err error) {
	stale, ok := errors.AsType[*fence.StaleError](err)
	switch {
	case ok:
		Set(w.Header(), stale.Highest)
		status := StatusStale
		if stale.Twin() {
			status = StatusTwin
		}
		http.Error(w, stale.Error(), status)
	case errors.Is(err, fence.ErrNoToken):
		http.Error(w, err.Error(), StatusMissing)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		http.Error(w, "fence: another request for the same thing took too long", http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
