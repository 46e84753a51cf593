//go:build unix

package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
)

func TestBreakAsksAndEndsTheHold(t *testing.T) {
	url, c := memory(t)
	holdfastHere("--store", url, "break", "--yes", "m").want(t, exitNo, "", "nobody holds m")
	holdfastHere("--store", url, "break", "--yes").want(t, exitUsage, "", "NAME is missing")

	h := lock(t, c.Mutex("m", holdfast.WithNote("stuck")))
	for _, answer := range []string{"", "\n", "n\n", "yesterday\n"} {
		r := holdfastAsked(answer, "--store", url, "break", "m").want(t, exitNo, "", "nothing was broken")
		if !strings.Contains(r.err, "(stuck) held it since") || !strings.Contains(r.err, "[y/N]") {
			t.Errorf("it asked %q", r.err)
		}
	}
	holdfastHere("--store", url, "break", "--json", "m").want(t, exitUsage, "", "add --yes")
	if h.Err() != nil {
		t.Fatal("it was broken without a yes")
	}
	holdfastAsked("Yes\n", "--store", url, "break", "m").want(t, exitOK, "broke the ticket of", "")
	<-h.Context().Done()
	if err := h.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the hold's error is %v", err)
	}
}

// TestBreakTakesTheTicketChosen has several tickets to choose from.
func TestBreakTakesTheTicketChosen(t *testing.T) {
	url, c := memory(t)
	s := c.Semaphore("s", 2)
	for range 2 {
		h, err := s.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Unlock() })
	}
	line, err := c.Inspect(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	id := line.Holders[1].ID
	holdfastHere("--store", url, "break", "--yes", "s").want(t, exitUsage, "", "2 hold s: choose one with --ticket: "+line.Holders[0].ID)
	holdfastHere("--store", url, "break", "--yes", "s", "--ticket", "none:1").want(t, exitNo, "", "s has no ticket none:1")
	r := holdfastHere("--store", url, "break", "--yes", "--json", "s", "--ticket", id).want(t, exitOK, "", "")
	if o := objects(t, r.out); o[0]["name"] != "s" || o[0]["broken"].(map[string]any)["id"] != id {
		t.Errorf("%v", o)
	}
	if line, err = c.Inspect(t.Context(), "s"); err != nil || len(line.Holders)+len(line.Waiters) != 1 || line.Holders[0].ID == id {
		t.Errorf("%v, %v", line, err)
	}
}

// TestBreakRemovesAWaiter takes the second of two waiters out of the line.
func TestBreakRemovesAWaiter(t *testing.T) {
	url, c := memory(t)
	lock(t, c.Mutex("m"))
	waitBehind(t, open(t, url), "m", 1)
	waitBehind(t, open(t, url), "m", 2)
	line, err := c.Inspect(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	id := line.Waiters[1].ID
	holdfastHere("--store", url, "break", "--yes", "m", "--ticket", id).want(t, exitOK, "which waited for m", "")
	for _, ticket := range []holdfast.TicketInfo{line.Holders[0], line.Waiters[0]} {
		if r := holdfastHere("--store", url, "show", "m"); !strings.Contains(r.out, ticket.ID) {
			t.Errorf("ticket %s is gone: %s", ticket.ID, r.out)
		}
	}
}
