package lockclient

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
)

// TestHandedOnPermitsHaveATokenOfTheirOwn lets two clients wait for all permits at one
// server, which hands them on from the first to the second one without asking its store,
// and says so by an event. The second one has a place that another server has answered, so
// it believes in events: it must not hold with the token of the first.
func TestHandedOnPermitsHaveATokenOfTheirOwn(t *testing.T) {
	bubble(t, func(w *world) {
		servers := w.startLossy()
		a, b := w.hosts[0], w.hosts[1]
		async := func(c *holdfast.Client) <-chan *holdfast.Hold {
			got := make(chan *holdfast.Hold, 1)
			go func() {
				h, err := c.Semaphore("s", 3, holdfast.WithTTL(9*time.Second)).Acquire(context.Background(), 3)
				if err != nil {
					t.Error(err)
				}
				got <- h
			}()
			time.Sleep(10 * time.Millisecond)
			return got
		}
		d, err := open(context.Background(), &address{hosts: []string{b, a}}, w.net)
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		holder := <-async(w.client())
		two := async(c) // at b
		one := async(w.client())
		w.moveTo(a, servers)
		time.Sleep(3500 * time.Millisecond) // its renewal has come to a, where it waits behind one
		if err := holder.Unlock(); err != nil {
			t.Fatal(err)
		}
		first := <-one // after b has given its grant back
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		second := <-two
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		time.Sleep(time.Minute)
		if err := second.Err(); err != nil {
			t.Errorf("the hold was lost: %v", err)
		}
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
