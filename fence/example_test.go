package fence_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/memlock"
)

// Example guards a write in a program.
func Example() {
	ctx := context.Background()
	locks, err := holdfast.New(memlock.New(memlock.NewStore()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	var guard fence.Guard
	register := ""
	write := func(token uint64, text string) error {
		return guard.Do(ctx, fence.Token{Value: token}, func() error {
			register = text
			return nil
		})
	}
	token := func() (t uint64) {
		_ = locks.Do(ctx, "register", func(ctx context.Context) error {
			t = holdfast.Token(ctx, "register")
			return nil
		})
		return t
	}
	first, second := token(), token()
	fmt.Println("second:", write(second, "new data"))
	err = write(first, "old data")
	fmt.Println("first, late:", err != nil)
	fmt.Println(register)
	// Output:
	// second: <nil>
	// first, late: true
	// new data
}

// ExampleToken_shared checks tokens of readers.
func ExampleToken_shared() {
	var guard fence.Guard
	fmt.Println(guard.Check(fence.Token{Value: 3, Shared: true}))
	fmt.Println(guard.Check(fence.Token{Value: 2}))
	fmt.Println(guard.Check(fence.Token{Value: 4}))
	fmt.Println(guard.Check(fence.Token{Value: 3, Shared: true}))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// fence: token 3 came after 4
}

// ExampleAdmit applies the rule of a guard by itself.
func ExampleAdmit() {
	type object struct {
		version int // ETag or generation
		token   uint64
		data    string
	}
	stored := object{version: 1, token: 7, data: "new data"}
	put := func(token uint64, data string) error {
		read := stored // GET, or HEAD
		if err := fence.Admit(fence.Token{Value: read.token}, fence.Token{Value: token}); err != nil {
			return err
		}
		// PUT with If-Match: if another put came in between, the store refuses
		// this one.
		if stored.version != read.version {
			return fmt.Errorf("412 Precondition Failed")
		}
		stored = object{read.version + 1, token, data}
		return nil
	}
	fmt.Println(put(5, "old data"))
	fmt.Println(put(8, "newer data"))
	fmt.Println(stored.data)
	// Output:
	// fence: token 5 came after 7
	// <nil>
	// newer data
}
