package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// ExampleClient_Inspect shows who holds a lock, and who waits.
func ExampleClient_Inspect() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Mutex("nightly").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	seen, err := locks.Inspect(ctx, "nightly")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(seen.Kind(), "holders:", len(seen.Holders), "waiters:", len(seen.Waiters))
	fmt.Println(seen.Holders[0].ID == hold.Ticket(), seen.Token == hold.Token())
	fmt.Println(hold.Unlock())
	// Output:
	// mutex holders: 1 waiters: 0
	// true true
	// <nil>
}

// ExampleClient_Names looks for the locks of one service.
func ExampleClient_Names() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Multi([]string{"billing/42", "shop/7"}).Do(ctx, func(ctx context.Context) error {
		for name, err := range locks.Names(ctx, "billing/") {
			if err != nil {
				return err
			}
			fmt.Println(name)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// billing/42
	// <nil>
}

// ExampleClient_Break takes a lock from a holder that is known to be stuck.
func ExampleClient_Break() {
	ctx := context.Background()
	store := memlock.NewStore()
	// These clients stand for two processes.
	stuck, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	operator, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stuck.Close()
	defer operator.Close()

	hold, err := stuck.Mutex("nightly").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	seen, err := operator.Inspect(ctx, "nightly")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(operator.Break(ctx, "nightly", seen.Holders[0].ID))
	<-hold.Context().Done()
	fmt.Println("lost:", errors.Is(hold.Err(), holdfast.ErrLost))
	err = operator.Break(ctx, "nightly", seen.Holders[0].ID)
	fmt.Println("again:", errors.Is(err, holdfast.ErrNoTicket))
	// Output:
	// <nil>
	// lost: true
	// again: true
}

// ExampleClient_Check refuses to start on a store that breaks a promise.
func ExampleClient_Check() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	findings, err := locks.Check(context.Background())
	if err != nil && !errors.Is(err, holdfast.ErrUnsupported) {
		fmt.Println(err)
		return
	}
	fit := true
	for _, f := range findings {
		if f.Level == holdfast.LevelProblem {
			fmt.Println(f.Topic, f.Detail, f.Advice)
			fit = false
		}
	}
	fmt.Println("fit to keep locks:", fit)
	// Output: fit to keep locks: true
}

// ExampleClient_Identity compares what two programs were configured with.
func ExampleClient_Identity() {
	ctx := context.Background()
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
	elsewhere, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	defer b.Close()
	defer elsewhere.Close()

	first, _ := a.Identity(ctx)
	second, _ := b.Identity(ctx)
	third, _ := elsewhere.Identity(ctx)
	fmt.Println(first == second, first == third)
	// Output: true false
}

// ExampleClient_Traits asks whether the store has Once.
func ExampleClient_Traits() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	traits := locks.Traits()
	fmt.Println("Once:", traits.Marks, "read/write locks:", traits.Shared)
	// Output: Once: true read/write locks: true
}

// notReady stands for a store that answers, and is about to serve.
type notReady struct{ holdfast.Driver }

func (notReady) Join(context.Context, *driver.Ticket, bool) (driver.Status, error) {
	return driver.Status{}, driver.NotReady(3*time.Second, "loading its data")
}

// ExampleStoreError_RetryAfter tells the client of a service when to come again.
func ExampleStoreError_RetryAfter() {
	locks, err := holdfast.New(notReady{memlock.New(memlock.NewStore())})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	post := func(w http.ResponseWriter, r *http.Request) {
		hold, err := locks.Mutex("invoice/42").TryLock(r.Context())
		var failed *holdfast.StoreError
		switch {
		case err == nil:
			defer hold.Unlock()
		case errors.Is(err, holdfast.ErrHeld):
			http.Error(w, "somebody posts this invoice", http.StatusLocked)
		case errors.As(err, &failed) && failed.RetryAfter() > 0:
			w.Header().Set("Retry-After", fmt.Sprintf("%.0f", failed.RetryAfter().Seconds()))
			http.Error(w, "come again", http.StatusServiceUnavailable)
		case errors.As(err, &failed) && (failed.Unavailable() || failed.Unknown()):
			http.Error(w, "come again some time", http.StatusServiceUnavailable)
		default:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
	w := httptest.NewRecorder()
	post(w, httptest.NewRequest("POST", "/invoice/42", nil))
	fmt.Println(w.Code, "Retry-After:", w.Header().Get("Retry-After"))
	// Output: 503 Retry-After: 3
}

// readOnly stands for a store whose user may not write.
type readOnly struct{ holdfast.Driver }

func (readOnly) Join(context.Context, *driver.Ticket, bool) (driver.Status, error) {
	return driver.Status{}, driver.Errorf(driver.Refused, "the user may not write")
}

// ExampleStoreError_Refused ends a program whose store will not do it, and tries
// again where that may help.
func ExampleStoreError_Refused() {
	locks, err := holdfast.New(readOnly{memlock.New(memlock.NewStore())})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(context.Background(), "nightly", func(context.Context) error { return nil })
	var failed *holdfast.StoreError
	switch {
	case errors.As(err, &failed) && failed.Refused():
		fmt.Println("give up:", err)
	case errors.As(err, &failed) && failed.Unavailable():
		fmt.Println("try again")
	}
	// Output: give up: holdfast: acquire "nightly": refused: the user may not write
}
