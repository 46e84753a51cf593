package stock

import (
	"fmt"
	"testing"
)

// inShard selects a shard's rows.
func inShard(s *sqlServers, at shard) string {
	return s.conns[at.server].kind.statement().add("shard IN (SELECT id FROM "+s.prefix+"shard WHERE sku = ? AND i = ?)", at.sku, at.i).String()
}

// snapshotRows copies a shard with all receipts, and returns a function that puts
// the copy in the shard's place.
func snapshotRows(t *testing.T, s *sqlServers, at shard) (restore func()) {
	t.Helper()
	db, copied := s.conns[at.server].db, s.prefix+"copy"+fmt.Sprint(prefixes.Add(1))
	do := func(text string) {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	do("CREATE TABLE " + copied + "s AS SELECT * FROM " + s.prefix + "shard WHERE " + s.conns[at.server].kind.statement().add("sku = ? AND i = ?", at.sku, at.i).String())
	do("CREATE TABLE " + copied + "r AS SELECT * FROM " + s.prefix + "receipt WHERE " + inShard(s, at))
	return func() {
		loseRows(t, s, at)
		do("INSERT INTO " + s.prefix + "shard SELECT * FROM " + copied + "s")
		do("INSERT INTO " + s.prefix + "receipt SELECT * FROM " + copied + "r")
	}
}

// empty removes all products.
func (s *sqlServers) empty(t *testing.T) {
	t.Helper()
	for _, c := range s.conns {
		for _, table := range []string{"product", "shard", "receipt"} {
			if _, err := c.db.ExecContext(t.Context(), "DELETE FROM "+s.prefix+table); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// loseRows removes a shard with all receipts.
func loseRows(t *testing.T, s *sqlServers, at shard) {
	t.Helper()
	for _, text := range []string{
		"DELETE FROM " + s.prefix + "receipt WHERE " + inShard(s, at),
		s.conns[at.server].kind.statement().add("DELETE FROM "+s.prefix+"shard WHERE sku = ? AND i = ?", at.sku, at.i).String(),
	} {
		if _, err := s.conns[at.server].db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}
