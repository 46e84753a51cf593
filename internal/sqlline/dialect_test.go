package sqlline

import (
	"reflect"
	"strings"
	"testing"
)

// other is a dialect with everything different, as a server's would be.
var other = Dialect{
	Now: "micros()", Tick: "ticks()", Numbered: true, Greatest: "GREATEST", ForUpdate: " FOR UPDATE",
	Prefix: "app.hf_", NoPartial: true, Note: "LAST", Batch: 999, Grant: "TELL(wake, id, token)",
	Types: Types{Int: "BIGINT", Key: "BYTEA", Bytes: "BYTEA", ID: "TEXT", Owner: "TEXT", Text: "TEXT", Wake: "TEXT"},
}

func TestText(t *testing.T) {
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
	text = other.text(2, s)
	if want := "UPDATE app.hf_line SET a = GREATEST($1, micros()), b = ticks() WHERE k IN ($2, $3) AND c > micros() FOR UPDATE"; text.SQL != want {
		t.Errorf("%q, want %q", text.SQL, want)
	}
	if got, want := text.with(1, 2, 3).Values(), []any{1, 2, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("values are %v, want %v", got, want)
	}
}

// Every statement of every dialect is translated to the end.
func TestTexts(t *testing.T) {
	for name, d := range map[string]Dialect{"sqlite": {Types: SQLite, Clock: func() (int64, int64) { return 0, 0 }}, "other": other} {
		l := New(d)
		all := l.Schema()
		v := reflect.ValueOf(l.t)
		for i := range v.NumField() {
			all = append(all, sqlOf(v.Field(i))...)
		}
		for _, s := range all {
			if strings.ContainsAny(s, "{}<\n\t") && !strings.Contains(s, "<=") && !strings.Contains(s, "< ") && !strings.Contains(s, "<>") || strings.Contains(s, "  ") {
				t.Errorf("%s: %s", name, s)
			}
			if name == "other" && (strings.Contains(s, "?") || strings.Contains(s, "holdfast_") || strings.Contains(s, " max(")) {
				t.Errorf("%s: %s", name, s)
			}
		}
	}
}

// sqlOf finds the texts in a value.
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
			return nil // a batch greater than the dialect's, or what it cannot do
		}
		all = []string{v.Elem().FieldByName("SQL").String()}
	}
	return all
}
