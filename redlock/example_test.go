package redlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/redlock"
)

// ExampleNew takes a lock on three stores, of which one may fail. Here they are
// in memory; redislock.Open with restart_guard=on makes nodes of Redis servers,
// and anylock opens them all by one URL: redlock://h1,h2,h3.
func ExampleNew() {
	var nodes []driver.Driver
	for range 3 {
		nodes = append(nodes, memlock.New(memlock.NewStore()))
	}
	d, err := redlock.New(nodes, nil)
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Do(context.Background(), "invoice/42", func(ctx context.Context) error {
		fmt.Println("held by a majority:", holdfast.Token(ctx, "invoice/42") > 0)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: held by a majority: true
}
