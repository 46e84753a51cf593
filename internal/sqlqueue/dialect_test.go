package sqlqueue

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// otherDialect is a dialect in which everything differs, as for a server.
var otherDialect = Dialect{ConstantBounds: true,
	Now: "micros()", Tick: "ticks()", Numbered: true, Greatest: "GREATEST", ForUpdate: " FOR UPDATE",
	Prefix: "app.hf_", NoPartial: true, Note: "LAST", Batch: 999, NotifyGrant: "TELL(wake, id, token)",
	Types: Types{Int: "BIGINT", Key: "BYTEA", Bytes: "BYTEA", ID: "TEXT", Owner: "TEXT", Text: "TEXT", Wake: "TEXT"},
}

func TestTextInEachDialect(t *testing.T) {
	local := Dialect{Clock: func() (int64, int64) { return 70, 80 }}
	const s = `
		UPDATE {line} SET a = {max}(?, {now}),
			b = {tick} WHERE k IN ({list}) AND c > {now}{lock}`
	text := local.text(2, s)
	if want := "UPDATE holdfast_line SET a = max(?, ?), b = ? WHERE k IN (?, ?) AND c > ?"; text.SQL != want {
		t.Errorf("%q, want %q", text.SQL, want)
	}
	if got, want := text.with(1, 2, 3).Values(), []any{1, int64(70), int64(80), 2, 3, int64(70)}; !reflect.DeepEqual(got, want) {
		t.Errorf("values are %v, want %v", got, want)
	}
	text = otherDialect.text(2, s)
	if want := "UPDATE app.hf_line SET a = GREATEST($1, micros()), b = ticks() WHERE k IN ($2, $3) AND c > micros() FOR UPDATE"; text.SQL != want {
		t.Errorf("%q, want %q", text.SQL, want)
	}
	if got, want := text.with(1, 2, 3).Values(), []any{1, 2, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("values are %v, want %v", got, want)
	}
}

// greatest matches the function that returns its greatest argument; the
// aggregate of that name has one argument.
var greatest = regexp.MustCompile(` max\([^()]*,`)

// TestTextsAreFullyTranslated checks that every statement of every dialect is
// fully translated.
func TestTextsAreFullyTranslated(t *testing.T) {
	for name, d := range map[string]Dialect{"sqlite": {Types: SQLiteTypes, Clock: func() (int64, int64) { return 0, 0 }}, "other": otherDialect} {
		q := New(d)
		all := q.Schema()
		v := reflect.ValueOf(q.t)
		for i := range v.NumField() {
			all = append(all, sqlOf(v.Field(i))...)
		}
		for _, s := range all {
			if strings.ContainsAny(s, "{}<\n\t") && !strings.Contains(s, "<=") && !strings.Contains(s, "< ") && !strings.Contains(s, "<>") || strings.Contains(s, "  ") {
				t.Errorf("%s: %s", name, s)
			}
			if name == "other" && (strings.Contains(s, "?") || strings.Contains(s, "holdfast_") || greatest.MatchString(s)) {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
}

// sqlOf returns the texts in a value.
func sqlOf(v reflect.Value) (all []string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			all = append(all, sqlOf(v.Field(i))...)
		}
	case reflect.Array:
		for i := range v.Len() {
			all = append(all, sqlOf(v.Index(i))...)
		}
	default:
		if v.IsNil() {
			return nil // a batch greater than the dialect's, or a statement that it does not have
		}
		all = []string{v.Elem().FieldByName("SQL").String()}
	}
	return all
}
