package multiproc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// eventWriter writes the events of a client, whole lines only.
type eventWriter struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (w *eventWriter) write(what string, token uint64, err error) {
	e := event{What: what, Token: token, At: bootTime()}
	if err != nil {
		e.Error = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(e) // the test sees that nothing comes
}

// mayRetry reports whether another try may help.
func mayRetry(err error) bool {
	e, ok := errors.AsType[*holdfast.StoreError](err)
	return ok && (e.Unknown() || e.Unavailable())
}

// serve obeys commands until in ends, and closes the client then.
func serve(target string, open func(string) (driver.Driver, error), in io.Reader, out io.Writer) error {
	d, err := open(target)
	if err != nil {
		return err
	}
	locks, err := holdfast.New(d)
	if err != nil {
		return err
	}
	w := &eventWriter{out: json.NewEncoder(out)}
	var holds sync.Map // name → *holdfast.Hold
	var work sync.WaitGroup
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return err
		}
		m := locks.Mutex(c.Name, holdfast.WithTTL(c.TTL))
		switch c.Op {
		case "lock":
			work.Go(func() {
				w.write("asked", 0, nil)
				h, err := m.Lock(context.Background())
				// On a busy machine a store may not answer within a TTL.
				for tries := 5; err != nil && tries > 0 && mayRetry(err); tries-- {
					h, err = m.Lock(context.Background())
				}
				if err != nil {
					w.write("failed", 0, err)
					return
				}
				holds.Store(c.Name, h) // before the test can ask for its release
				w.write("held", h.Token(), nil)
				watch(w, h)
			})
		case "unlock":
			h, _ := holds.Load(c.Name)
			// The claim ends when Unlock is called, not when it returns.
			w.write("unlocked", h.(*holdfast.Hold).Token(), nil)
			if err := h.(*holdfast.Hold).Unlock(); err != nil {
				w.write("failed", 0, err)
			}
		case "count":
			work.Go(func() { count(w, m, c) })
		}
	}
	err = locks.Close()
	work.Wait()
	return err
}

// watch tells when a hold is lost: by its context, and by a look at Err as
// often as the processor allows, like work that checks before each step.
func watch(w *eventWriter, h *holdfast.Hold) {
	for h.Err() == nil {
		select {
		case <-h.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
	if err := h.Err(); errors.Is(err, holdfast.ErrLost) {
		w.write("lost", h.Token(), err)
	}
}

// count adds to a number in a file, which goes wrong without a lock: what is
// read is written back later. Each number is written with its fencing token,
// which must have grown.
func count(w *eventWriter, m *holdfast.Mutex, c command) {
	for range c.Times {
		began := false
		once := func() error {
			return m.Do(context.Background(), func(ctx context.Context) error {
				began = true
				return increment(c.File, holdfast.Token(ctx, c.Name))
			})
		}
		err := once()
		for tries := 5; err != nil && !began && tries > 0 && mayRetry(err); tries-- {
			err = once()
		}
		if err != nil {
			w.write("failed", 0, err)
			return
		}
	}
	w.write("counted", 0, nil)
}

func increment(file string, token uint64) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	num, last, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	n, err := strconv.Atoi(num)
	if err != nil {
		return err
	}
	before, err := strconv.ParseUint(last, 10, 64)
	if err != nil {
		return err
	}
	if token <= before {
		return fmt.Errorf("token %d after %d", token, before)
	}
	time.Sleep(100 * time.Microsecond)
	return os.WriteFile(file, fmt.Appendf(nil, "%d %d\n", n+1, token), 0o600)
}
