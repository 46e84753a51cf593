package mysqllock

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestMarkTableDropped checks that a table of marks which somebody dropped is
// created again, by whichever request finds it missing, and that the schema has
// it.
func TestMarkTableDropped(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	d := openOn(t, url)
	for i, request := range []func() error{
		func() error { return d.SetMark(t.Context(), "n", driver.Mark{Token: 1}) },
		func() error { _, err := d.Mark(t.Context(), "n"); return err },
	} {
		if err := request(); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if n := s.Value(t, "SELECT count(*) FROM information_schema.tables WHERE table_schema = database() AND table_name = '"+prefixOf(url)+"mark'"); n != 1 {
			t.Errorf("%d tables of marks", n)
		}
		s.Exec(t, "DROP TABLE "+prefixOf(url)+"mark")
	}
	text, err := Schema(nil)
	if err != nil || !strings.Contains(text, "holdfast_mark (") || !strings.Contains(text, "ON holdfast_mark TO app") {
		t.Errorf("the schema lacks the table of marks: %s, %v", text, err)
	}
}
