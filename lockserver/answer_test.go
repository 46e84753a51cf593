package lockserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

// TestAnswersAreJSON compares what is written without an encoder with the encoder's word,
// for each type of value and for texts that JSON writes otherwise.
func TestAnswersAreJSON(t *testing.T) {
	for _, value := range []any{
		"", "plain", "<b>&", `a"b\c`, "tab\there", "zwölf", "\x7f\x00", "\u2028", "bad \xff", true, false, 0, -1,
		int64(math.MinInt64), uint64(math.MaxUint64), fields(nil), fields{}, fields{{"a", 1}, {"b", "x"}}, []fields(nil), []fields{},
		[]fields{{{"a", true}}, {{"b", fields{{"c", uint64(1)}}}}}, []string{"a", "<"}, nil,
	} {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(value); err != nil {
			t.Fatal(err)
		}
		if got := string(appendValue(nil, value)) + "\n"; got != want.String() {
			t.Errorf("%#v: %s, want %s", value, got, want.String())
		}
	}
}

// TestOwnersStay checks the name that an id has at the store: servers of two versions, and
// one before and after an upgrade, have to give it the same.
func TestOwnersStay(t *testing.T) {
	for _, realm := range []string{"", "a b", `"`} {
		holds := &table{realm: realm}
		for _, principal := range []string{LocalName, "zwölf\n", `a" "b`} {
			want := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", realm, principal, "id.1"))
			if holds.keyOf(principal, "id.1") != holdKey(want) {
				t.Errorf("%q, %q: another owner than before", realm, principal)
			}
		}
	}
}
