package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

// ExampleNew makes a client of a driver, with options for all of its locks.
func ExampleNew() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithTTL(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	fmt.Println(locks.TTL())
	// Output: 1m0s
}

// ExampleWithTTL gives one lock a lease of its own. A lease that the store does not
// allow is an error at once.
func ExampleWithTTL() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Mutex("import", holdfast.WithTTL(10*time.Second)).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(time.Until(hold.Deadline()) < 10*time.Second, hold.Unlock())
	_, err = locks.Mutex("import", holdfast.WithTTL(time.Millisecond)).Lock(ctx)
	fmt.Println(err)
	// Output:
	// true <nil>
	// holdfast: TTL 1ms is below this store's minimum of 10ms
}

// ExampleWithPrefix gives two programs of one store names of their own.
func ExampleWithPrefix() {
	ctx := context.Background()
	store := memlock.NewStore()
	billing, err := holdfast.New(memlock.New(store), holdfast.WithPrefix("billing/"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer billing.Close()
	all, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer all.Close()

	err = billing.Do(ctx, "nightly", func(ctx context.Context) error {
		for name, err := range all.Names(ctx, "") {
			fmt.Println(name, err)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// billing/nightly <nil>
	// <nil>
}

// ExampleWithObserver counts losses.
func ExampleWithObserver() {
	var granted, lost int
	counter := &holdfast.Observer{
		LockDone: func(_ context.Context, e holdfast.LockDoneInfo) context.Context {
			if e.Err == nil {
				granted++
			}
			return nil // the caller's context
		},
		HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
			if errors.Is(e.Err, holdfast.ErrLost) {
				lost++
			}
		},
	}
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(counter))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(context.Background(), "invoice/42", func(context.Context) error { return nil })
	fmt.Println(err, "granted:", granted, "lost:", lost)
	// Output: <nil> granted: 1 lost: 0
}

// ExampleWithMaxHold frees a lock from work that hangs: its context ends, with the
// reason.
func ExampleWithMaxHold() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(context.Background(), "import", func(ctx context.Context) error {
		<-ctx.Done() // the work, which does not come to an end by itself
		return nil
	}, holdfast.WithMaxHold(20*time.Millisecond))
	var lost *holdfast.LostError
	fmt.Println(errors.As(err, &lost) && lost.Reason == holdfast.LossMaxHold)
	// Output: true
}

// ExampleWithNote tells the others what the holder does.
func ExampleWithNote() {
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

	err = a.Do(ctx, "nightly", func(ctx context.Context) error {
		seen, err := b.Inspect(ctx, "nightly")
		if err == nil {
			fmt.Println(seen.Kind(), "held for:", seen.Holders[0].Holder.Note)
		}
		return err
	}, holdfast.WithNote("report for May"))
	fmt.Println(err)
	// Output:
	// mutex held for: report for May
	// <nil>
}

// ExampleWithHolder shows the process for which a server holds the lock, in place of
// the server.
func ExampleWithHolder() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Mutex("deploy", holdfast.WithHolder(holdfast.Holder{Host: "build-7", PID: 4242})).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	var held *holdfast.HeldError
	if _, err := locks.Mutex("deploy").TryLock(ctx); errors.As(err, &held) {
		fmt.Println(held.Holder.PID, "on", held.Holder.Host)
	}
	fmt.Println(hold.Unlock())
	// Output:
	// 4242 on build-7
	// <nil>
}

// ExampleWithWaiting tells a user how many are ahead, and who holds.
func ExampleWithWaiting() {
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

	hold, err := a.Mutex("printer", holdfast.WithNote("a long report")).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	var once sync.Once
	waits := func(w holdfast.Waiting) {
		once.Do(func() {
			fmt.Println("ahead:", w.Ahead, "holding:", w.Holder.Note)
			fmt.Println(hold.Unlock())
		})
	}
	next, err := b.Mutex("printer", holdfast.WithWaiting(waits)).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(next.Unlock())
	// Output:
	// ahead: 1 holding: a long report
	// <nil>
	// <nil>
}

// ExampleWithManualRenewal holds a lock for another process, which asks for each
// renewal: a lock that nobody asks for ends with its lease.
func ExampleWithManualRenewal() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Mutex("deploy", holdfast.WithManualRenewal()).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	before := hold.Deadline()
	fmt.Println(hold.Renew(ctx), hold.Deadline().After(before))
	fmt.Println(locks.Renew(ctx, hold)) // one request for many holds
	fmt.Println(hold.Unlock())
	// Output:
	// <nil> true
	// [<nil>]
	// <nil>
}

// ExampleWithExistingSize rolls a new size out: programs with the new one adopt the
// old one while it is in use.
func ExampleWithExistingSize() {
	ctx := context.Background()
	store := memlock.NewStore()
	// These clients stand for two versions of a program.
	before, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer before.Close()
	defer after.Close()

	old, err := before.Semaphore("renderers", 2).Acquire(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = after.Semaphore("renderers", 5).TryAcquire(ctx, 1)
	fmt.Println("without the option:", errors.Is(err, holdfast.ErrKindMismatch))
	hold, err := after.Semaphore("renderers", 5, holdfast.WithExistingSize()).TryAcquire(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("with it:", hold.Unlock())
	fmt.Println(old.Unlock())
	// Output:
	// without the option: true
	// with it: <nil>
	// <nil>
}
