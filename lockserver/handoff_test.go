package lockserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/plainhttp"
	"github.com/holdfast-go/holdfast/memlock"
)

var costs = flag.Bool("lockserver.costs", false, "measure how long a hand-off takes between processes")

var process = flag.String("lockserver.process", "", "be a process of TestHandOffBetweenProcesses: KIND,SOCKET")

const (
	handoffs = 1000                   // of each of the two processes
	holdFor  = 300 * time.Microsecond // until the other one waits
)

// TestHandOffBetweenProcesses measures how long a lock takes from one process to another on the same
// machine, through a lock server on a Unix socket, and, in the same run, how long one
// message takes between them through a third process that does nothing else. All are
// processes of their own, and their clock is the machine's.
func TestHandOffBetweenProcesses(t *testing.T) {
	if *process != "" {
		kind, socket, _ := strings.Cut(*process, ",")
		if err := handoffProcesses[kind](socket); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !*costs {
		return // make serve-costs
	}
	for range 3 {
		relayed := medianBetween(t, "relay", "message")
		baton := medianBetween(t, "baton", "pinned")
		pinned := medianBetween(t, "serve", "pinned")
		resumable := medianBetween(t, "serve", "resumable")
		t.Logf("p50 of a bare relay %v; of a hand-off by the same requests to a handler with a channel %v, by a server, pinned %v, resumable %v", relayed, baton, pinned, resumable)
	}
}

// medianBetween returns the median of the times that two processes of a kind measure with a
// process between them.
func medianBetween(t *testing.T, between, kind string) time.Duration {
	socket := filepath.Join(t.TempDir(), "s")
	start := func(kind string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHandOffBetweenProcesses$", "-lockserver.process="+kind+","+socket)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	middle, _ := start(between)
	defer func() {
		_ = middle.Process.Kill()
		_ = middle.Wait()
	}()
	for {
		if c, err := net.Dial("unix", socket+".ready"); err == nil {
			_ = c.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	one, first := start(kind)
	two, second := start(kind)
	for _, cmd := range []*exec.Cmd{one, two} {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	var moments []moment
	for _, out := range []*bytes.Buffer{first, second} {
		for line := range strings.Lines(out.String()) {
			var m moment
			if _, err := fmt.Sscanf(line, "moment %d %d %d", &m.order, &m.got, &m.gave); err == nil {
				m.by = out
				moments = append(moments, m)
			}
		}
	}
	slices.SortFunc(moments, func(a, b moment) int { return int(a.order - b.order) })
	var took []time.Duration
	for i := 1; i < len(moments); i++ {
		if moments[i].by != moments[i-1].by {
			took = append(took, time.Duration(moments[i].got-moments[i-1].gave))
		}
	}
	if len(took) < handoffs {
		t.Fatalf("%d times between two processes of %d", len(took), len(moments))
	}
	slices.Sort(took)
	return took[len(took)/2].Round(time.Microsecond)
}

// moment is one turn of a process: the times at which it got and gave, in nanoseconds.
type moment struct {
	order, got, gave int64
	by               *bytes.Buffer
}

var handoffProcesses = map[string]func(socket string) error{
	"serve":     handoffServe,
	"relay":     handoffRelay,
	"baton":     handoffBaton,
	"message":   handoffMessages,
	"pinned":    func(socket string) error { return handoffLocks(socket, "true") },
	"resumable": func(socket string) error { return handoffLocks(socket, "false") },
}

func handoffServe(socket string) error {
	c, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		return err
	}
	s, err := New(c, Options{})
	if err != nil {
		return err
	}
	return handoffListen(socket, s)
}

// handoffBaton answers an acquire with what the last release gave back.
func handoffBaton(socket string) error {
	baton := make(chan int64, 1)
	baton <- 0
	return handoffListen(socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/v1/acquire" {
			n := <-baton
			_, _ = fmt.Fprintf(w, `{"token":%d}`, n)
			return
		}
		baton <- batons.Add(1)
		_, _ = io.WriteString(w, "{}")
	}))
}

var batons atomic.Int64

func handoffListen(socket string, h http.Handler) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if _, err := net.Listen("unix", socket+".ready"); err != nil {
		return err
	}
	return http.Serve(l, h)
}

// handoffRelay passes messages of 8 bytes on between two connections.
func handoffRelay(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if _, err := net.Listen("unix", socket+".ready"); err != nil {
		return err
	}
	one, err := l.Accept()
	if err != nil {
		return err
	}
	two, err := l.Accept()
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(onlyWriter{two}, onlyReader{one}) }()
	if _, err := one.Write(make([]byte, 8)); err != nil { // the first one begins
		return err
	}
	_, err = io.Copy(onlyWriter{one}, onlyReader{two})
	return err
}

// onlyReader and onlyWriter keep io.Copy from the system's own copy.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

// handoffMessages passes a number back and forth.
func handoffMessages(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	out := bufio.NewWriter(os.Stdout)
	buffer := make([]byte, 8)
	for range handoffs {
		if _, err := io.ReadFull(conn, buffer); err != nil {
			break // the other one has ended
		}
		got := time.Now().UnixNano()
		order := binary.BigEndian.Uint64(buffer) + 1
		binary.BigEndian.PutUint64(buffer, order)
		time.Sleep(holdFor)
		gave := time.Now().UnixNano()
		if _, err := conn.Write(buffer); err != nil {
			break
		}
		fmt.Fprintf(out, "moment %d %d %d\n", order, got, gave)
	}
	return out.Flush()
}

// handoffLocks takes a lock and releases it, while another process wants it, too.
func handoffLocks(socket, pinned string) error {
	web := &http.Client{Transport: &plainhttp.Transport{MaxIdle: 1, IdleTimeout: time.Minute, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	post := func(path string, form url.Values) (token int64, err error) {
		resp, err := web.PostForm("http://localhost"+path, form)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err
		}
		var a struct{ Token int64 }
		if err := json.Unmarshal(b, &a); err != nil || resp.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("%s: %d %s %w", path, resp.StatusCode, b, err)
		}
		return a.Token, nil
	}
	defer web.CloseIdleConnections()
	out := bufio.NewWriter(os.Stdout)
	for i := range 2 * handoffs {
		id := fmt.Sprintf("handoff-%08d-process.%d", os.Getpid(), i)
		token, err := post("/v1/acquire", url.Values{"id": {id}, "name": {"lock"}, "ttl_ms": {"30000"}, "pinned": {pinned}})
		if err != nil {
			return err
		}
		got := time.Now().UnixNano()
		time.Sleep(holdFor)
		gave := time.Now().UnixNano()
		if _, err := post("/v1/release", url.Values{"id": {id}, "name": {"lock"}}); err != nil {
			return err
		}
		fmt.Fprintf(out, "moment %d %d %d\n", token, got, gave)
	}
	return out.Flush()
}
