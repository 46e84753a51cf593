package promholdfast_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/promholdfast"
)

func ExampleNew() {
	metrics := promholdfast.New(promholdfast.Options{Scheme: "memory"})
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(metrics)
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(metrics.Observer()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locks.Do(context.Background(), "invoice/42", func(context.Context) error { return nil })
	families, _ := registry.Gather()
	for _, f := range families {
		fmt.Println(f.GetName())
	}
	fmt.Println(err)
	// Output:
	// holdfast_lock_count
	// holdfast_lock_hold_duration_seconds
	// holdfast_lock_wait_duration_seconds
	// <nil>
}
