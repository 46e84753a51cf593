package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/safety/trace"
)

// tortureFlaws are flaws of a store that the lane has to refuse in each run, so that
// what is left open about times and outcomes lets nothing else pass. Clients of those
// after cut= lose their connections.
var tortureFlaws = []string{"flaw=two-holders", "flaw=last-come", "flaw=leave-is-release", "cut=flaw=two-holders", "cut=flaw=last-come", "cut=flaw=leave-is-release"}

// runTorture holds the requests of torture runs on stores against the specification.
func runTorture(ctx context.Context, k *Checker, stores string, each time.Duration) error {
	loose := *k
	loose.Loose = true
	recorded, err := recordBy(ctx, stores, []string{
		"-run", "^TestRecordTorture$", "-trace.torture", stores + "," + strings.Join(tortureFlaws, ","), "-trace.torture-for", each.String(),
	})
	if err != nil {
		return err
	}
	var wrong []string
	for _, store := range slices.Sorted(maps.Keys(recorded)) {
		var parts []trace.Trace
		for i := range recorded[store] {
			cut, grow := trace.Cut(&recorded[store][i])
			if !grow {
				wrong = append(wrong, fmt.Sprintf("%s: the tokens of lock %q go back", store, recorded[store][i].Name))
			}
			parts = append(parts, cut...)
		}
		a, err := loose.checkTraces(ctx, "torture-"+store, parts, false)
		if err != nil {
			return err
		}
		fmt.Printf("%-45s %d locks, %d traces, %d events: %d refused, %.0f s\n", "torture: "+store, len(recorded[store]), a.Traces, a.Events, len(a.Refused), a.Seconds)
		if strings.Contains(store, "flaw=") {
			if len(a.Refused) == 0 {
				wrong = append(wrong, store+": all traces are accepted")
			}
			continue
		}
		for _, r := range a.Refused {
			wrong = append(wrong, store+": "+r.String())
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the traces are not as they have to be:\n\t%s", strings.Join(wrong, "\n\t"))
	}
	return nil
}
