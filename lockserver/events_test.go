package lockserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestEventsForAudits checks the events of holds, requests and breaks: each once, with
// the hashed id and never the id, and that a break that cannot be recorded is refused.
func TestEventsForAudits(t *testing.T) {
	bubble(t, func(w *world) {
		var mu sync.Mutex
		var holds []string
		requests := 0
		record := func(e HoldInfo) {
			mu.Lock()
			defer mu.Unlock()
			holds = append(holds, strings.TrimSpace(fmt.Sprintf("%s %s %v %s", e.Event, e.Name, e.Held, e.Reason)))
			if e.Principal != "ops" || strings.Contains(e.HashedID, id(1)) || !strings.HasPrefix(e.HashedID, ownerPrefix) || e.Token == 0 {
				t.Errorf("%+v", e)
			}
		}
		full := false
		all := Principal{Name: "ops", Grants: []Grant{{May: []Right{RightRead, RightLock, RightBreak}}}}
		o := Options{Auth: byHeader(all), Events: Events{
			Hold: record,
			Request: func(e RequestInfo) {
				mu.Lock()
				defer mu.Unlock()
				requests++
				if e.Status == 0 || e.Endpoint == "" || (e.Status >= 400) != (e.Code != "") {
					t.Errorf("%+v", e)
				}
			},
			Break: func(e BreakInfo) error {
				if e.Principal != "ops" || e.Name == "" {
					t.Errorf("%+v", e)
				}
				if full {
					return errors.New("the disk is full")
				}
				return nil
			},
		}}
		a, b := as(w.serverWith(w.client(), o), "ops"), as(w.serverWith(w.client(), o), "ops")
		first := w.acquire(a, 1, "a")
		time.Sleep(time.Second)
		w.acquire(b, 1, "a", "resume", first.text("token"))
		w.release(b, 1, "a", "moved", "true")
		settle()
		w.acquire(a, 2, "b")
		time.Sleep(10 * time.Second)
		w.acquire(a, 3, "c")
		full = true
		owner := w.get(a, "/v1/lock?name=c")
		ticket := owner.body["holders"].([]any)[0].(map[string]any)["ticket"].(string)
		w.want("break", w.post(a, "/v1/break", "name", "c", "ticket", ticket), 500, "code", "internal")
		w.want("renew", w.renew(a, 3), 200, "state", "held")
		full = false
		w.want("break", w.post(a, "/v1/break", "name", "c", "ticket", ticket), 200, "broken", "1")
		settle()
		mu.Lock()
		defer mu.Unlock()
		// The first server learns that its ticket is gone, and not why; it may see that of
		// the second one leave.
		holds = slices.DeleteFunc(holds, func(e string) bool { return e == "lost a 1s gone" })
		slices.Sort(holds)
		want := []string{"grant a 0s", "grant b 0s", "grant c 0s", "lost b 8.89s expired", "lost c 0s gone", "release a 0s", "resume a 0s"}
		if !slices.Equal(holds, want) || requests != 9 {
			t.Errorf("%d requests, events %q", requests, holds)
		}
	})
}
