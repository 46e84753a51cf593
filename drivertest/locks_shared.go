package drivertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func shared(t driver.Traits) bool { return t.Shared }
func owners(t driver.Traits) bool { return t.Owner }

var sharedCases = []lockCase{
	{name: "readers and writers", about: "many readers or one writer, among clients", needs: shared, run: func(w *lockWorld) {
		var readers, writers, together atomic.Int32
		n := 0
		var wg sync.WaitGroup
		for i := range 6 {
			rw := w.client().RWMutex(w.name)
			wg.Go(func() {
				for j := range 8 {
					var err error
					if (i+j)%3 == 0 {
						err = rw.Do(w.limit(), func(context.Context) error {
							defer writers.Add(-1)
							if writers.Add(1) != 1 || readers.Load() != 0 {
								return fmt.Errorf("%d writers, %d readers", writers.Load(), readers.Load())
							}
							n++
							time.Sleep(time.Millisecond)
							return nil
						})
					} else {
						err = rw.RDo(w.limit(), func(context.Context) error {
							defer readers.Add(-1)
							if readers.Add(1) > 1 {
								together.Add(1)
							}
							if writers.Load() != 0 {
								return errors.New("a reader beside a writer")
							}
							time.Sleep(time.Millisecond)
							return nil
						})
					}
					if err != nil {
						w.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n != 16 {
			w.Errorf("%d writes", n)
		}
		if together.Load() == 0 {
			w.Logf("readers never met; that is slow, not wrong")
		}
	}},
	{name: "a writer is not passed", about: "a reader that comes after a waiting writer waits", needs: shared, run: func(w *lockWorld) {
		a, b, c := w.client(), w.client(), w.client()
		r, err := a.RWMutex(w.name).RLock(w.limit())
		if err != nil {
			w.Fatal(err)
		}
		wrote := make(chan struct{})
		go func() {
			_ = b.RWMutex(w.name).Do(w.limit(), func(context.Context) error { return nil })
			close(wrote)
		}()
		w.until("the writer waits", func() bool { return w.tickets(a, w.name) == 2 })
		if _, err := c.RWMutex(w.name).TryRLock(w.limit()); !errors.Is(err, holdfast.ErrHeld) {
			w.Errorf("TryRLock: %v", err)
		}
		w.unlock(r)
		<-wrote
	}},
	{name: "semaphore", about: "the permits out never exceed the size", needs: shared, run: func(w *lockWorld) {
		var out atomic.Int64
		var wg sync.WaitGroup
		for i := range 6 {
			sem := w.client().Semaphore(w.name, 4)
			n := int64(1 + i%3)
			wg.Go(func() {
				for range 6 {
					err := sem.Do(w.limit(), int(n), func(context.Context) error {
						defer out.Add(-n)
						if got := out.Add(n); got > 4 {
							return fmt.Errorf("%d of 4 permits out", got)
						}
						time.Sleep(time.Millisecond)
						return nil
					})
					if err != nil {
						w.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}},
	{name: "kinds", about: "another kind or size is refused and named (F63)", needs: shared, run: func(w *lockWorld) {
		a, b := w.client(), w.client()
		h, err := a.Semaphore(w.name, 3).Acquire(w.limit(), 1)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := b.Mutex(w.name).Lock(w.limit()); !errors.Is(err, holdfast.ErrKindMismatch) {
			w.Errorf("Mutex: %v", err)
		}
		if _, err := b.Semaphore(w.name, 5).TryAcquire(w.limit(), 1); !errors.Is(err, holdfast.ErrKindMismatch) {
			w.Errorf("Semaphore of 5: %v", err)
		}
		w.unlock(h)
		w.unlock(w.lock(b.Mutex(w.name)))
	}},
	{name: "owner", about: "a named owner holds across clients, with one token", needs: owners, run: func(w *lockWorld) {
		job := holdfast.WithOwner(w.name + "-job")
		a, b, c := w.client(), w.client(), w.client()
		h1 := w.lock(a.Mutex(w.name, job))
		h2 := w.lock(b.Mutex(w.name, job))
		if h1.Token() != h2.Token() {
			w.Errorf("tokens %d and %d", h1.Token(), h2.Token())
		}
		w.unlock(h1)
		if _, err := c.Mutex(w.name).TryLock(w.limit()); !errors.Is(err, holdfast.ErrHeld) {
			w.Errorf("TryLock while the owner holds once: %v", err)
		}
		if err := h2.Detach(); err != nil {
			w.Fatal(err)
		}
		h3 := w.lock(c.Mutex(w.name, job)) // the job's next process
		if h3.Token() != h1.Token() {
			w.Errorf("token %d, want the job's %d", h3.Token(), h1.Token())
		}
		w.unlock(h3)
	}},
	{name: "multi", about: "several names at once, in any order, all or none (F65)", run: func(w *lockWorld) {
		names := []string{w.name + "c", w.name + "a", w.name + "b"}
		n := 0
		var one criticalSection
		var wg sync.WaitGroup
		for i := range 4 {
			c := w.client()
			wg.Go(func() {
				for range 5 {
					err := c.Multi([]string{names[i%3], names[(i+1)%3], names[(i+2)%3]}).Do(w.limit(), one.counter(&n))
					if err != nil {
						w.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if n != 20 {
			w.Errorf("%d of 20", n)
		}
	}},
}
