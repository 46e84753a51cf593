package sqlqueue

import (
	"math"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// TestF66_MarkTableLayout checks that the table of marks stays as it is: other
// versions depend on it.
func TestF66_MarkTableLayout(t *testing.T) {
	got := New(Dialect{Types: SQLiteTypes}).MarkSchema()
	const golden = "CREATE TABLE IF NOT EXISTS holdfast_mark ( k BLOB NOT NULL PRIMARY KEY, name BLOB NOT NULL, token INTEGER NOT NULL, value BLOB NOT NULL ) STRICT, WITHOUT ROWID"
	if strings.Join(strings.Fields(got), " ") != golden {
		t.Errorf("the table is\n%s, want\n%s", got, golden)
	}
	prefixed := New(Dialect{Types: SQLiteTypes, Prefix: "locks_"}).MarkSchema()
	if !strings.Contains(prefixed, " locks_mark ") {
		t.Errorf("with a prefix: %s", prefixed)
	}
}

// TestF67_MarkTokensEnd checks that a token which does not fit into a signed
// column, and a mark without a token, are refused before anything is sent.
func TestF67_MarkTokensEnd(t *testing.T) {
	s := New(Dialect{Types: SQLiteTypes})
	for _, token := range []uint64{0, math.MaxInt64 + 1, math.MaxUint64} {
		if err := s.SetMark(t.Context(), nil, "n", driver.Mark{Token: token}); err == nil || driver.ClassOf(err) != driver.Refused {
			t.Errorf("token %d: %v", token, err)
		}
	}
}
