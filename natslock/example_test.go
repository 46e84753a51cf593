package natslock_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/natslock"
)

// ExampleOpenURL opens a driver on a cluster of three, in the bucket locks.
func ExampleOpenURL() {
	ctx := context.Background()
	d, err := natslock.OpenURL(ctx, "nats://nats1,nats2,nats3/locks?replicas=3")
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
	conn, err := nats.Connect("nats://nats1:4222")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	d, err := natslock.New(context.Background(), conn, natslock.Options{})
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
