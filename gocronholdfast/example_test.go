package gocronholdfast_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/gocronholdfast"
	"github.com/holdfast-go/holdfast/memlock"
)

func ExampleTask() {
	locks, err := holdfast.New(memlock.New(memlock.NewStore())) // anylock.Open in a program
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Shutdown()
	made := make(chan struct{})
	report := func(ctx context.Context) error { // ctx ends when the lock is lost
		close(made)
		return nil
	}
	_, err = scheduler.NewJob(gocron.DurationJob(24*time.Hour), gocronholdfast.Task(locks, "report", 24*time.Hour, report),
		gocron.WithStartAt(gocron.WithStartImmediately()))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	<-made
	fmt.Println("the report is made, on one machine")
	// Output: the report is made, on one machine
}
