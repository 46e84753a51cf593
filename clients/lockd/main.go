// Command lockd runs a command beside two lock servers over one store, for the tests
// of the clients:
//
//	go run ./clients/lockd python3 -m unittest discover clients/python
//
// HOLDFAST_SERVERS names the servers to the command, separated by a comma. The store is
// the memory of lockd, unless -store is a store's URL. POST /test/down cuts the
// connections of a server until POST /test/up, as if the server were dead.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/lockserver"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lockd:", err)
	}
	os.Exit(status)
}

var errUsage = errors.New("usage: lockd [-store=URL] COMMAND [ARGUMENT…]")

// run starts the servers and then the command, and returns the command's exit status.
func run(command []string) (int, error) {
	if len(command) == 0 {
		return 64, errUsage
	}
	store := "memory:lockd"
	if url, ok := strings.CutPrefix(command[0], "-store="); ok {
		store, command = url, command[1:]
	}
	if len(command) == 0 {
		return 64, errUsage
	}
	var addresses []string
	for range 2 {
		address, stop, err := serve(store)
		if err != nil {
			return 70, err
		}
		defer stop()
		addresses = append(addresses, address)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(cmd.Environ(), "HOLDFAST_SERVERS="+strings.Join(addresses, ","))
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 127, err
	}
	return 0, nil
}

// serve starts a server with a client of its own, and returns its address.
func serve(store string) (address string, stop func(), err error) {
	client, err := anylock.Open(context.Background(), store)
	if err != nil {
		return "", nil, err
	}
	server, err := lockserver.New(client, lockserver.Options{Limits: lockserver.Limits{MinTTL: 200 * time.Millisecond}})
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	web := &http.Server{Handler: withSwitch(server), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = web.Serve(listener) }()
	stop = func() {
		_ = web.Close()
		_ = client.Close()
	}
	return "http://" + listener.Addr().String(), stop, nil
}

// withSwitch lets a test cut the connections of a server.
func withSwitch(server http.Handler) http.Handler {
	var down atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/test/down":
			down.Store(true)
		case r.URL.Path == "/test/up":
			down.Store(false)
		case down.Load():
			panic(http.ErrAbortHandler)
		default:
			server.ServeHTTP(w, r)
		}
	})
}
