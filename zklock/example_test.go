package zklock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/zklock"
)

// ExampleOpen opens a driver on an ensemble of three, below a chroot.
func ExampleOpen() {
	ctx := context.Background()
	d, err := zklock.Open(ctx, "zk://ann:secret@zk1,zk2,zk3/app?root=/locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := holdfast.New(d)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locks.Do(ctx, "invoice/42", func(context.Context) error { return nil })
	fmt.Println(err)
}

// ExampleNew makes a driver on a connection that the program already has.
func ExampleNew() {
	ctx := context.Background()
	tap := zklock.NewTap(nil)
	conn, _, err := zk.Connect([]string{"zk1:2181"}, 30*time.Second, zk.WithDialer(tap.Dial), zk.WithEventCallback(tap.Event))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	d, err := zklock.New(ctx, conn, tap, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := holdfast.New(d)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
}
