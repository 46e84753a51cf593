package holdfast_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func ExampleMutex_Do() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	invoice := locks.Mutex("invoice/42")
	err = invoice.Do(context.Background(), func(ctx context.Context) error {
		return ctx.Err() // the work
	})
	fmt.Println(err)
	// Output: <nil>
}

// ExampleHold_Err does work that cannot be interrupted in steps, and asks for the
// lock before each.
func ExampleHold_Err() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Mutex("import").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer hold.Unlock()
	for _, file := range []string{"a.csv", "b.csv"} {
		if err := hold.Err(); err != nil {
			fmt.Println(hold.Name(), "stops:", err)
			return
		}
		fmt.Println("import", file)
	}
	// Output:
	// import a.csv
	// import b.csv
}

// ExampleHold_Token gives a database the token, so that it refuses a holder that was
// paused for longer than its lease.
func ExampleHold_Token() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	invoice := locks.Mutex("invoice/42")
	var tokens []uint64
	for range 2 {
		hold, err := invoice.Lock(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		tokens = append(tokens, hold.Token()) // UPDATE … WHERE fence <= $1
		if err := hold.Unlock(); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(0 < tokens[0] && tokens[0] < tokens[1])
	// Output: true
}

// ExampleHold_Unlock shows a loss that the work did not notice.
func ExampleHold_Unlock() {
	ctx := context.Background()
	store := memlock.NewStore()
	locks, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	operator, err := holdfast.New(memlock.New(store))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	defer operator.Close()

	hold, err := locks.Mutex("import").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(operator.Break(ctx, "import", hold.Ticket()))
	err = hold.Unlock()
	fmt.Println("look at the import before it is repeated:", errors.Is(err, holdfast.ErrLost))
	// Output:
	// <nil>
	// look at the import before it is repeated: true
}

// ExampleHold_Unlock_nil defers an Unlock before it is known whether there is a hold.
func ExampleHold_Unlock_nil() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	var hold *holdfast.Hold
	defer func() { fmt.Println(errors.Is(hold.Unlock(), holdfast.ErrReleased)) }()

	var ctx context.Context // forgotten
	hold, err = locks.Mutex("import").Lock(ctx)
	fmt.Println(err)
	// Output:
	// holdfast: "import": the context is nil
	// true
}

// ExampleMulti_Lock takes two accounts at once. Another program that names them in
// another order does not wait for ever.
func ExampleMulti_Lock() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Multi([]string{"account/9", "account/7"}).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.Multi([]string{"account/7", "account/8"}).TryLock(ctx)
	fmt.Println("busy:", errors.Is(err, holdfast.ErrHeld))
	fmt.Println(hold.Token("account/7") > 0, hold.Token("account/9") > 0, hold.Err())
	work := hold.Context() // ends when one of the locks is lost
	fmt.Println(work.Err(), hold.Unlock())
	// Output:
	// busy: true
	// true true <nil>
	// <nil> <nil>
}

// ExampleRWMutex_RDo reads beside others, and writes alone.
func ExampleRWMutex_RDo() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	config := locks.RWMutex("config")
	err = config.Do(ctx, func(context.Context) error {
		_, err := config.TryRLock(ctx) // ctx is of no hold: another reader
		fmt.Println("a reader beside a writer:", errors.Is(err, holdfast.ErrHeld))
		return nil
	})
	fmt.Println(err)
	err = config.RDo(ctx, func(context.Context) error {
		other, err := config.TryRLock(ctx)
		if err != nil {
			return err
		}
		fmt.Println("a reader beside a reader")
		return other.Unlock()
	})
	fmt.Println(err)
	writer, err := config.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(writer.Unlock())
	// Output:
	// a reader beside a writer: true
	// <nil>
	// a reader beside a reader
	// <nil>
	// <nil>
}

// ExampleSemaphore_Do uses two of four permits.
func ExampleSemaphore_Do() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	memory := locks.Semaphore("gigabytes", 4)
	err = memory.Do(ctx, 2, func(context.Context) error {
		_, err := memory.TryAcquire(ctx, 3)
		fmt.Println("three more:", errors.Is(err, holdfast.ErrHeld))
		return nil
	})
	fmt.Println(err)
	all, err := memory.Acquire(ctx, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(all.Unlock())
	// Output:
	// three more: true
	// <nil>
	// <nil>
}
