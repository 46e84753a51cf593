// Command config has a setting of two lines that belong together. Many read it
// and few write it, a line at a time, as one writes files or rows. Readers hold
// the read/write lock together, so they do not wait for each other; a writer
// holds it alone, so nobody reads half of an old and half of a new setting.
//
//	go run ./examples/config
//	go run ./examples/config -store redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
)

const (
	readers = 6
	reads   = 8 // of each
	writes  = 4
)

func main() {
	store := flag.String("store", "sqlite:locks.db", "URL of the store")
	flag.Parse()
	if err := run(context.Background(), *store); err != nil {
		log.Fatal(err)
	}
}

// setting is two files that must agree.
type setting struct{ host, port string }

func (s setting) write(version int) error {
	if err := os.WriteFile(s.host, fmt.Appendf(nil, "host-%d", version), 0o600); err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond)
	return os.WriteFile(s.port, fmt.Appendf(nil, "port-%d", version), 0o600)
}

// read says whether the two belong together.
func (s setting) read() (whole bool, err error) {
	host, err := os.ReadFile(s.host)
	if err != nil {
		return false, err
	}
	time.Sleep(5 * time.Millisecond)
	port, err := os.ReadFile(s.port)
	return strings.TrimPrefix(string(host), "host") == strings.TrimPrefix(string(port), "port"), err
}

func run(ctx context.Context, store string) error {
	dir, err := os.MkdirTemp("", "holdfast-config-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := setting{filepath.Join(dir, "host"), filepath.Join(dir, "port")}
	if err := s.write(0); err != nil {
		return err
	}

	var torn, now, most atomic.Int64
	read := func(context.Context) error {
		n := now.Add(1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		whole, err := s.read()
		if !whole {
			torn.Add(1)
		}
		now.Add(-1)
		return err
	}

	var all sync.WaitGroup
	errs := make([]error, readers+1)
	for i := range errs {
		locks, err := anylock.Open(ctx, store) // a process of its own
		if err != nil {
			return err
		}
		defer locks.Close()
		lock := locks.RWMutex("examples/config")
		all.Go(func() {
			if i == readers { // the writer
				for version := range writes {
					errs[i] = errors.Join(errs[i], lock.Do(ctx, func(context.Context) error { return s.write(version + 1) }))
				}
				return
			}
			for range reads {
				errs[i] = errors.Join(errs[i], lock.RDo(ctx, read))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("%d processes read %d times, up to %d at a time, while one wrote %d times\n", readers, readers*reads, most.Load(), writes)
	fmt.Printf("%d of them read half of an old setting\n", torn.Load())
	if torn.Load() > 0 {
		return errors.New("the lock has let a reader in beside the writer")
	}
	return nil
}
