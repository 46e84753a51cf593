package drivertest

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// listenSilently listens on an address without a store: it accepts connections,
// sends greeting on each, and nothing else. In a bubble, where no connection can
// be made, it returns an address that nobody listens on.
func (w *world) listenSilently(greeting string) (address string) {
	w.Helper()
	if w.h.bubble {
		return "127.0.0.1:1"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatalf("listen: %v", err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(greeting))
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	})
	w.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
		for _, c := range open {
			_ = c.Close()
		}
	})
	return l.Addr().String()
}

// checkOpenFails checks that a driver cannot be opened on an address where no
// store answers.
func (w *world) checkOpenFails(what, address string) {
	w.Helper()
	limit := 3*driver.OpenLimit + w.h.Slack // on a busy machine
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		d, err := w.h.OpenAt(ctx, address)
		if err == nil {
			_ = d.Close()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		switch {
		case err == nil:
			w.Errorf("a server that %s was opened", what)
		case !strings.Contains(err.Error(), address):
			w.Errorf("a server that %s: the error does not name %s: %v", what, address, err)
		case driver.ClassOf(err) != driver.Unavailable && driver.ClassOf(err) != driver.Refused:
			w.Errorf("a server that %s: the class of %v is %v", what, err, driver.ClassOf(err))
		case strings.Contains(err.Error(), "\t"):
			w.Errorf("a server that %s: there are tabs in the error: %q", what, err)
		default:
			w.Logf("a server that %s: %v", what, err)
		}
	case <-time.After(limit):
		w.Errorf("a server that %s: Open had not returned after %v", what, limit)
		cancel()
		<-ended
	}
}

var openCases = []Case{
	{Name: "open-silent", Rules: "OpenLimit, F123", Needs: OpenAt, run: func(w *world) {
		// A server accepts connections and says nothing: a driver that is opened
		// without a deadline ends by itself, and names the address.
		w.checkOpenFails("says nothing", w.listenSilently(""))
	}},
	{Name: "open-stranger", Rules: "OpenLimit, F123", Needs: OpenAt, run: func(w *world) {
		// A server greets in another protocol, and says nothing else.
		w.checkOpenFails("speaks another protocol", w.listenSilently("SSH-2.0-OpenSSH_9.2\r\n"))
	}},
}
