package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func ExampleClient_Do() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(ctx, "invoice/42", func(ctx context.Context) error {
		fmt.Println("alone, with a token:", holdfast.Token(ctx, "invoice/42") > 0)
		return ctx.Err() // ends when the lock is lost
	})
	fmt.Println(err)
	// Output:
	// alone, with a token: true
	// <nil>
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	store := memlock.NewStore()
	// These clients stand for two processes.
	a, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	defer b.Close()

	hold, err := a.Mutex("nightly", holdfast.WithNote("report for May")).TryLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = b.Mutex("nightly").TryLock(ctx)
	var held *holdfast.HeldError
	if errors.As(err, &held) {
		fmt.Println("busy with:", held.Holder.Note)
		fmt.Println("free by itself, should it have died, within 32 s:", held.Left > 0 && held.Left < 32*time.Second)
	}
	fmt.Println(hold.Unlock())
	// Output:
	// busy with: report for May
	// free by itself, should it have died, within 32 s: true
	// <nil>
}

// ExampleWithMaxWait is a handler that waits for a while, and then says why it gave up.
func ExampleWithMaxWait() {
	store := memlock.NewStore()
	// These clients stand for two processes.
	locks, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	other, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer other.Close()

	post := func(ctx context.Context) error { return nil }
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch err := locks.Do(r.Context(), "invoice/42", post, holdfast.WithMaxWait(20*time.Millisecond)); {
		case errors.Is(err, holdfast.ErrHeld): // not free within MaxWait
			http.Error(w, "somebody is posting this invoice", http.StatusLocked)
		case errors.Is(err, holdfast.ErrLost):
			http.Error(w, "interrupted: look at the invoice before you repeat it", http.StatusInternalServerError)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
	respond := func() {
		w := httptest.NewRecorder()
		handler(w, httptest.NewRequest("POST", "/invoice/42", nil))
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	hold, err := other.Mutex("invoice/42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	respond()
	fmt.Println(hold.Unlock())
	respond()
	// Output:
	// 423 somebody is posting this invoice
	// <nil>
	// 200
}

// ExampleClient_Ping is a readiness probe.
func ExampleClient_Ping() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	ready := func(w http.ResponseWriter, r *http.Request) {
		if err := locks.Ping(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	}
	w := httptest.NewRecorder()
	ready(w, httptest.NewRequest("GET", "/ready", nil))
	fmt.Println(w.Code, w.Body)
	// Output:
	// 200 ready
}

func ExampleClient_Stats() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Mutex("page").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+v\n", locks.Stats())
	fmt.Println(hold.Unlock())
	// Output:
	// {Held:1 Waiting:0}
	// <nil>
}

// ExampleMutex_Lock shows that a context bounds the wait, not the hold.
func ExampleMutex_Lock() {
	store := memlock.NewStore()
	a, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	defer b.Close()

	hold, err := a.Mutex("page").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = b.Mutex("page").Lock(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(hold.Unlock())
	// Output:
	// true
	// <nil>
}

// ExampleHold_Context shows that a lock taken with the context of a hold nests
// in that hold.
func ExampleHold_Context() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	charge := func(ctx context.Context) error {
		return locks.Do(ctx, "account/7", func(context.Context) error {
			fmt.Println("charged")
			return nil
		})
	}
	err = locks.Do(context.Background(), "account/7", func(ctx context.Context) error {
		return charge(ctx) // takes the same lock; does not wait for itself
	})
	fmt.Println(err)
	// Output:
	// charged
	// <nil>
}

func ExampleClient_Multi() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Multi([]string{"account/9", "account/7"}).Do(context.Background(), func(ctx context.Context) error {
		fmt.Println(holdfast.Token(ctx, "account/7") > 0, holdfast.Token(ctx, "account/9") > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// true true
	// <nil>
}

// ExampleWithOwner shows that all holders that name one owner hold together,
// across processes.
func ExampleWithOwner() {
	ctx := context.Background()
	store := memlock.NewStore()
	first, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Close()

	hold, err := first.Mutex("import", holdfast.WithOwner("import-2026-11")).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hold.Detach()) // the process ends, the job goes on
	first.Close()

	again, err := second.Mutex("import", holdfast.WithOwner("import-2026-11")).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.Token() == hold.Token(), again.Unlock())
	// Output:
	// <nil>
	// true <nil>
}

func ExampleClient_Semaphore() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	pool := locks.Semaphore("renderers", 2)
	a, _ := pool.TryAcquire(ctx, 1)
	b, _ := pool.TryAcquire(ctx, 1)
	_, err = pool.TryAcquire(ctx, 1)
	fmt.Println(errors.Is(err, holdfast.ErrHeld))
	fmt.Println(a.Unlock(), b.Unlock())
	// Output:
	// true
	// <nil> <nil>
}

func ExampleClient_RWMutex() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	config := locks.RWMutex("config")
	r, _ := config.RLock(ctx)
	_, err = config.TryLock(ctx)
	fmt.Println("a writer beside a reader:", errors.Is(err, holdfast.ErrHeld))
	fmt.Println(r.Unlock())
	// Output:
	// a writer beside a reader: true
	// <nil>
}
