package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// Example shows two clients of one store that take turns.
func Example() {
	ctx := context.Background()
	store := memlock.NewStore()
	ann, bob := memlock.New(store), memlock.New(store)
	defer ann.Close()
	defer bob.Close()

	if err := bob.Watch(ctx, func(id string, p driver.Status) { fmt.Println("pushed:", id, p.State) }); err != nil {
		fmt.Println(err)
	}
	a := &driver.Ticket{ID: "ann:1", Name: "invoice/42", Units: 1, Limit: 1, TTL: 30 * time.Second}
	b := &driver.Ticket{ID: "bob:1", Name: "invoice/42", Units: 1, Limit: 1, TTL: 30 * time.Second}

	p, _ := ann.Join(ctx, a, true)
	fmt.Println(a.ID, p.State)
	p, _ = bob.Join(ctx, b, true)
	fmt.Println(b.ID, p.State, "behind", p.Ahead)
	ps, _ := ann.Leave(ctx, []driver.Ref{{Ticket: a, State: driver.Held}})
	fmt.Println(a.ID, "left, and was", ps[0].State)
	// Output:
	// ann:1 held
	// bob:1 waiting behind 1
	// pushed: bob:1 held
	// ann:1 left, and was held
}

// ExampleOpen shows that all drivers that one process opens by one name share a
// store, and that the empty name is a new store every time.
func ExampleOpen() {
	ctx := context.Background()
	a, b, c := memlock.Open("orders"), memlock.Open("orders"), memlock.Open("")
	ida, _ := a.Identity(ctx)
	idb, _ := b.Identity(ctx)
	idc, _ := c.Identity(ctx)
	fmt.Println(ida == idb, ida == idc)
	// Output: true false
}

// ExampleNew shows locks inside one process: a store in memory, and the same
// calls as on any other store.
func ExampleNew() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	hold, err := locks.Mutex("invoice/42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.Mutex("invoice/42").TryLock(ctx)
	fmt.Println(errors.Is(err, holdfast.ErrHeld))
	fmt.Println(hold.Unlock())
	// Output:
	// true
	// <nil>
}
