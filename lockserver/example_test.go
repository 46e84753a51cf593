package lockserver_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Example holds a lock by HTTP, as a program of any language does: it chooses an id for
// each try, asks for its turn, and releases by the same id.
func Example() {
	client, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks, err := lockserver.New(client, lockserver.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(locks)
	defer server.Close()

	id := "0b6f2d1e-5a0e-4a55-9c1a-3f6f0c1c7b52"
	fmt.Println(post(server.URL+"/v1/acquire", url.Values{"id": {id}, "name": {"invoice/42"}, "ttl_ms": {"30000"}}))
	fmt.Println(post(server.URL+"/v1/release", url.Values{"id": {id}, "name": {"invoice/42"}}))
	// Output:
	// 200 state=held
	// 200 id=0b6f2d1e-5a0e-4a55-9c1a-3f6f0c1c7b52 result=released
}

// post sends a form, and returns the status and the first lines of the answer.
func post(address string, form url.Values) string {
	r, err := http.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "text/plain")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	out := []string{fmt.Sprint(answer.StatusCode)}
	for line := range strings.Lines(string(body)) {
		for _, name := range []string{"state", "id", "result"} {
			if strings.HasPrefix(line, name+"=") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return strings.Join(out, " ")
}
