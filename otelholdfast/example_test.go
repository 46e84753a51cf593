package otelholdfast_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

func ExampleObserver() {
	// The metrics and spans go to the global providers.
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(otelholdfast.Observer(nil)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	fmt.Println(locks.Do(context.Background(), "invoice/42", func(context.Context) error { return nil }))
	// Output: <nil>
}

func ExampleProducer() {
	metrics := otelholdfast.NewProducer(&otelholdfast.Options{Scheme: "memory"})
	// A program has a PeriodicReader, with an exporter, in place of the ManualReader.
	reader := metric.NewManualReader(metric.WithProducer(metrics))
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	defer provider.Shutdown(context.Background())
	locks, err := holdfast.New(memlock.New(memlock.NewStore()), holdfast.WithObserver(metrics.Observer()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	if err := locks.Do(context.Background(), "invoice/42", func(context.Context) error { return nil }); err != nil {
		fmt.Println(err)
		return
	}
	var seen metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &seen); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range seen.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name)
	}
	// Output:
	// holdfast.lock.wait.duration
	// holdfast.lock.hold.duration
	// holdfast.lock.count
}
