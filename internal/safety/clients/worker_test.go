//go:build linux

package clients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/safety/checker"
	"github.com/holdfast-go/holdfast/lockserver"
)

// The arguments that make the test binary a lock server, and a Go program that counts.
const (
	asServer = "lock-server"
	asWorker = "go-worker"
)

// serve runs a lock server over the store whose URL is the first line of in, until in
// ends. It writes its address.
func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	store, err := lines.ReadString('\n')
	if err != nil {
		return err
	}
	client, err := anylock.Open(context.Background(), strings.TrimSpace(store))
	if err != nil {
		return err
	}
	server, err := lockserver.New(client, lockserver.Options{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: server, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines)
	return errors.Join(err, web.Close(), ignore(<-ended, http.ErrServerClosed), client.Close())
}

// ignore returns err, or nil if it is the expected one.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// work counts straight at the store whose URL is the first line of in.
func work(in io.Reader, out io.Writer, args []string) error {
	name, file := args[0], args[3]
	tasks, _ := strconv.Atoi(args[1])
	turns, _ := strconv.Atoi(args[2])
	store, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	// Every second task has a client of its own, whose order is judged; the others hand the
	// lock over among themselves.
	clients := make([]*holdfast.Client, tasks)
	for g := range clients {
		if clients[g] = clients[0]; g > 0 && g%2 == 0 {
			continue
		}
		client, err := anylock.Open(context.Background(), strings.TrimSpace(store))
		if err != nil {
			return err
		}
		defer client.Close()
		clients[g] = client
	}
	w := checker.NewWriter(out)
	failed := make([]error, tasks)
	var all sync.WaitGroup
	for g := range tasks {
		all.Go(func() {
			for turn := range turns {
				e := checker.Event{What: checker.Ask, G: g, N: int64(1 + g*turns + turn), Name: name, Units: 1, Limit: 1, Alone: g%2 == 1}
				_, _ = w.Write(e)
				var first sync.Once
				placed := holdfast.WithWaiting(func(holdfast.Waiting) {
					first.Do(func() { _, _ = w.Write(checker.Event{What: checker.Wait, G: g, N: e.N}) })
				})
				h, err := clients[g].Mutex(name, placed).Lock(context.Background())
				if err != nil {
					failed[g] = err
					return
				}
				_, _ = w.Write(checker.Event{What: checker.Got, G: g, N: e.N, Token: h.Token(), End: claim(h)})
				failed[g] = increment(file)
				_, _ = w.Write(checker.Event{What: checker.Out, G: g, N: e.N, End: claim(h)})
				failed[g] = errors.Join(failed[g], h.Unlock())
				_, _ = w.Write(checker.Event{What: checker.Done, G: g, N: e.N})
				if failed[g] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// claim returns the end of a hold's claim in boot time.
func claim(h *holdfast.Hold) int64 {
	now := checker.Now()
	return now + int64(time.Until(h.Deadline()))
}

// increment adds 1 to the number in a file, in two steps that another process can
// interrupt.
func increment(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(n+1)+"\n"), 0o600)
}
