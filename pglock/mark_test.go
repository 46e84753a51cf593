package pglock

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestMarkTableDenied checks that a user who may not create the table of marks is
// refused when it reads a mark, that the error names the schema, and that the
// statement of the schema and the rights it lists are enough.
func TestMarkTableDenied(t *testing.T) {
	s := servers.SharedPostgres(t)
	schema := "marks_" + strings.ToLower(rand.Text()[:8])
	owner := openOn(t, s.URL("postgres", "schema="+schema))
	s.Exec(t, "GRANT USAGE ON SCHEMA "+schema+" TO app")
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+schema+" TO app")
	d := openOn(t, s.URL("app", "schema="+schema))
	if _, err := d.Mark(t.Context(), "n"); driver.ClassOf(err) != driver.Refused || err == nil || !strings.Contains(err.Error(), "holdfast schema postgres") {
		t.Fatalf("without the right: %v", err)
	}
	s.Exec(t, owner.db.tables.Queues.MarkSchema())
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE ON "+owner.db.opt.tables()+"mark TO app")
	if err := d.SetMark(t.Context(), "n", driver.Mark{Token: 1, Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if m, err := owner.Mark(t.Context(), "n"); err != nil || m.Token != 1 || string(m.Value) != "v" {
		t.Errorf("Mark is %+v, %v", m, err)
	}
	text, err := Schema(&Options{Schema: schema})
	if err != nil || !strings.Contains(text, owner.db.tables.Queues.MarkSchema()) {
		t.Errorf("the schema lacks the table of marks: %s, %v", text, err)
	}
}
