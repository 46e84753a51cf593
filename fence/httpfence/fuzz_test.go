package httpfence_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/httpfence"
)

// FuzzHeaders checks that any headers of a client are a token above zero or an
// error, and that a token is read as it was set.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{"7", "", "0", "-1", "18446744073709551615", "18446744073709551616", "1e3", "0x7", "+7", " 7", "7\x00", "٧"} {
		f.Add(s, "a%2Fb", "true", uint64(7), "own\r\ner", true)
		f.Add(s, "%zz", "TRUE", uint64(0), "", false)
	}
	f.Fuzz(func(t *testing.T, token, owner, shared string, value uint64, name string, reader bool) {
		r := &http.Request{Header: http.Header{}}
		r.Header.Set(httpfence.Header, token)
		r.Header.Set(httpfence.OwnerHeader, owner)
		r.Header.Set(httpfence.SharedHeader, shared)
		if got, err := httpfence.FromRequest(r); (err == nil) != (got.Value > 0) {
			t.Errorf("%q, %q, %q: %+v, %v", token, owner, shared, got, err)
		}
		want := fence.Token{Value: value, Owner: name, Shared: reader}
		httpfence.Set(r.Header, want)
		got, err := httpfence.FromRequest(r)
		if value == 0 && err == nil || value > 0 && (err != nil || got != want) {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}
		for name, values := range r.Header {
			for _, v := range values {
				for _, b := range []byte(v) {
					if b < ' ' {
						t.Errorf("%s has a control character: %q", name, v)
					}
				}
			}
		}
	})
}
