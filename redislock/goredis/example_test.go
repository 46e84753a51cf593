package goredis_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/redislock/goredis"
)

func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	d, err := goredis.New(client, nil)
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
	_ = locks.Do(context.Background(), "invoice/42", func(ctx context.Context) error {
		fmt.Println("fencing token", holdfast.Token(ctx, "invoice/42"))
		return nil
	})
}
