// Package metrics counts what happens at a lock server, and writes it in the text
// format of Prometheus. No label has a name, an owner, a principal or an address: each
// of a label's values is one of a few that the source has.
package metrics

import (
	"bytes"
	"strconv"
	"strings"
)

// ContentType is that of the text format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Text is a page in the text format. The zero Text is empty.
type Text struct{ b bytes.Buffer }

// Bytes returns what was written.
func (t *Text) Bytes() []byte { return t.b.Bytes() }

// Family begins the series of a name: a counter, gauge or histogram.
func (t *Text) Family(name, kind, help string) {
	t.b.WriteString("# HELP " + name + " " + helpEscapes.Replace(help) + "\n# TYPE " + name + " " + kind + "\n")
}

// Sample writes one value. Labels are names and values in turn.
func (t *Text) Sample(name string, value float64, labels ...string) {
	t.b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		t.b.WriteString(sep + labels[i] + `="` + labelEscapes.Replace(labels[i+1]) + `"`)
	}
	if len(labels) > 1 {
		t.b.WriteByte('}')
	}
	t.b.WriteByte(' ')
	t.b.WriteString(number(value))
	t.b.WriteByte('\n')
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
