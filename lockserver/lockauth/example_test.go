package lockauth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/lockserver/lockauth"
	"github.com/holdfast-go/holdfast/memlock"
)

// Example gives rules to a lock server that a program embeds. Usually they come from a
// file, by OpenFile.
func Example() {
	token, hash := lockauth.NewToken()
	rules, err := lockauth.ParseRules([]byte(`{"principals":[
		{"name":"billing","token_sha256":["` + hash + `"],"rights":[{"prefix":"invoice/","may":["read","lock"]}]}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks, err := lockserver.New(client, lockserver.Options{Auth: &lockserver.Auth{Identify: rules.Identify}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"invoice/42", "salary/7"} {
		r := httptest.NewRequest(http.MethodPost, "/v1/acquire", strings.NewReader("ttl_ms=30000&id=0b6f2d1e5a0e4a55&name="+name))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		locks.ServeHTTP(answer, r)
		fmt.Println(name, answer.Code)
	}
	// Output:
	// invoice/42 200
	// salary/7 403
}
