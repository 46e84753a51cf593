package natslock_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/natslock"
)

// TestTraitsMatchTheTable checks that the column of the table of stores says what the
// driver's Traits say. The table is made in another module.
func TestTraitsMatchTheTable(t *testing.T) {
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, servers.SharedNATS(t), natslock.Options{})
	defer d.Close()
	tr := d.Traits()
	yes := map[bool]string{true: "yes", false: "no"}
	promised := map[bool]string{true: "yes", false: "not promised"}
	want := map[string]string{
		"URL":                                  "`" + tr.Scheme + ":`",
		"fencing tokens":                       yes[tr.Fencing],
		"read/write locks, semaphores":         yes[tr.Shared],
		"named owners across processes":        yes[tr.Owner],
		"strictly first in, first out":         yes[tr.Fair],
		"a release wakes the next waiter":      yes[tr.Push && !tr.PushLocal],
		"`Once`: once for each slot of time":   yes[tr.Marks],
		"holds survive a restart of the store": promised[tr.SurvivesRestart],
		"holds survive the loss of a server":   promised[tr.SurvivesFailover],
		"shortest TTL":                         fmt.Sprintf("%d ms", tr.MinTTL.Milliseconds()),
		"longest TTL":                          fmt.Sprintf("%d years", int(tr.MaxTTL.Hours())/24/365),
		"expiry is late by at most":            fmt.Sprint(tr.Granularity.Milliseconds()),
	}
	column, rows := -1, 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		for i, cell := range cells {
			if strings.TrimSpace(cell) == "NATS JetStream" && column < 0 {
				column = i
			}
		}
		if column < 0 || column >= len(cells) {
			continue
		}
		if cell, has := want[strings.TrimSpace(cells[1])]; has {
			rows++
			if got := strings.TrimSpace(cells[column]); got != cell {
				t.Errorf("%s: the table says %q, the Traits say %q", strings.TrimSpace(cells[1]), got, cell)
			}
		}
	}
	if rows != len(want) {
		t.Errorf("the table has %d of %d rows", rows, len(want))
	}
}
