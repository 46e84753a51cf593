package redislock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/redislock"
)

// ExampleOpen takes a lock on the Redis at a URL. The next holder starts where
// the last one stopped, in any process.
func ExampleOpen() {
	ctx := context.Background()
	d, err := redislock.Open(ctx, "redis://:password@localhost:6379/0?prefix=shop:")
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Do(ctx, "invoice/42", func(ctx context.Context) error {
		fmt.Println("token", holdfast.Token(ctx, "invoice/42"))
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

// ExampleNew takes a lock by way of a client that the program has anyway.
func ExampleNew() {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:       []string{"localhost:6379"},
		ForceSingleClient: true,
		DisableRetry:      true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	d, err := redislock.New(client, &redislock.Options{Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	if hold, err := locks.Mutex("invoice/42").TryLock(context.Background()); err == nil {
		defer hold.Unlock()
	}
}
