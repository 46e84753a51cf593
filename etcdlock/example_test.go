package etcdlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ExampleNew makes a client of the core with a driver on the program's own etcd
// client.
func ExampleNew() {
	cli, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer cli.Close()
	d, err := etcdlock.New(cli, &etcdlock.Options{Prefix: "locks/"})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Do(context.Background(), "invoice/42", func(ctx context.Context) error {
		fmt.Println("the token is", holdfast.Token(ctx, "invoice/42"))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
