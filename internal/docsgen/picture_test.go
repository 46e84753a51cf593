package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestLeasePlayedInMemory plays the first scene of the picture in memory: the lock is
// granted when the picture says so, and a living holder stops when it says so.
func TestLeasePlayedInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.NewStore()
		a := memlock.New(store)
		defer a.Close()
		begun := time.Now()
		ticket := &driver.Ticket{ID: "a:1", Name: "nightly", Units: 1, Limit: 1, TTL: lease}
		if s, err := a.Join(t.Context(), ticket, true); err != nil || s.State != driver.Held {
			t.Fatal(s, err)
		}
		b, err := holdfast.New(memlock.New(store))
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if b.TTL() != lease {
			t.Errorf("the default lease is %v", b.TTL())
		}
		time.Sleep(joined)
		got := make(chan time.Duration)
		go func() {
			h, err := b.Mutex("nightly").Lock(t.Context())
			if err != nil {
				t.Error(err)
				close(got)
				return
			}
			got <- time.Since(begun)
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
			close(got)
		}()
		time.Sleep(renewed - joined)
		if s, err := a.Renew(t.Context(), []driver.Ref{{Ticket: ticket, State: driver.Held}}); err != nil || s[0].State != driver.Held {
			t.Fatal(s, err)
		}
		if at := <-got; at != granted() {
			t.Errorf("granted after %v, the picture has %v", at, granted())
		}
		<-got
		now := time.Now()
		h, err := b.Mutex("another").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if lasts := h.Deadline().Sub(now); lasts != claim-renewed {
			t.Errorf("a claim lasts %v, the picture has %v", lasts, claim-renewed)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

func TestTimelineIsXML(t *testing.T) {
	d := xml.NewDecoder(bytes.NewReader(timelinePicture()))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
