package anylock

import (
	"strings"
	"testing"
)

func TestSchema(t *testing.T) {
	for _, tt := range []struct{ store, say string }{
		{"sqlite", "CREATE TABLE holdfast_line"},
		{"sqlite:/no/such/file", "STRICT"},
		{"postgres", "bytea"},
		{"postgresql://u:" + hush + "@h/db?schema=locks", `CREATE TABLE "locks".holdfast_line`},
		{"MySQL", "ENGINE=InnoDB"},
		{"mariadb", "holdfast_post"},
		{"mysql://u:" + hush + "@h/db?table_prefix=app_", "CREATE TABLE app_line"},
	} {
		text, err := Schema(tt.store)
		if err != nil || !strings.Contains(text, tt.say) || strings.Contains(text, hush) {
			t.Errorf("%s: %v; it does not say %q:\n%s", tt.store, err, tt.say, text)
		}
	}
	for _, tt := range []struct{ store, reason string }{
		{"redis", "has no tables"},
		{"redis://u:" + hush + "@h", "has no tables"},
		{"oracle://u:" + hush + "@h", "unknown scheme"},
		{"", "has no tables"},
		{"mysql://u:" + hush + "@h/db?retry=3", "unknown option"},
		{"mysql://u:" + hush + "%zz@h/db", "cannot be read"},
		{strings.Repeat("x", 30) + hush, "no tables"},
	} {
		_, err := Schema(tt.store)
		if err == nil || !strings.Contains(err.Error(), tt.reason) || strings.Contains(deep(err), hush) {
			t.Errorf("%s: %v", tt.store, err)
		}
	}
}
