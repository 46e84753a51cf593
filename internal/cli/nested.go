//go:build unix

package cli

import (
	"context"
	neturl "net/url"
	"os"
	"strconv"
)

// heldVar lists the locks of the runs around a command, with the tokens under
// which they are held: name=token&..., escaped as in a URL.
const heldVar = "HOLDFAST_HELD"

// handOffMask has the bits of a token that count local hand-offs, which the store
// does not know.
const handOffMask = 0xff

// heldValue returns the value of heldVar for a command under one more hold.
func heldValue(name string, token uint64) string {
	own := neturl.QueryEscape(name) + "=" + strconv.FormatUint(token, 10)
	if outer := os.Getenv(heldVar); outer != "" {
		return outer + "&" + own
	}
	return own
}

// outerTokens returns the tokens under which runs around this one hold a name.
func outerTokens(name string) map[uint64]bool {
	held, _ := neturl.ParseQuery(os.Getenv(heldVar)) // a malformed part is ignored
	tokens := map[uint64]bool{}
	for _, text := range held[name] {
		if token, err := strconv.ParseUint(text, 10, 64); err == nil && token > 0 {
			tokens[token&^handOffMask] = true
		}
	}
	return tokens
}

// checkSelfWait returns an error if the wait can end only after a run around this
// one, which itself waits for its command. It asks the store, because the
// environment may be out of date in a process that its command left behind.
func (r *runner) checkSelfWait(ctx context.Context) error {
	outer := outerTokens(r.name)
	if len(outer) == 0 {
		return nil
	}
	queue, err := r.client.Inspect(ctx, r.name)
	if err != nil {
		return nil //nolint:nilerr // the wait itself reports a problem with the store
	}
	var own int64
	for _, t := range queue.Holders {
		if outer[t.Token&^handOffMask] {
			own += t.Units
		}
	}
	if own == 0 || r.slots > 0 && own < queue.Size { // another holder's slot may become free
		return nil
	}
	advice := "leave out the inner run"
	if r.slots == 0 && r.oncePer == "" { // these take no owner
		advice += ", or give both the same --owner"
	}
	return usage("lock %s is held by the holdfast run around this command, which would wait for itself: %s", shown(r.name), advice)
}
