package checker

import (
	"fmt"
	"slices"
)

// regCell is the history's record of a name's register.
type regCell struct {
	value   int64
	highest uint64
	by      Key
}

// checkRegister applies C2. The register's own process stamps the events, in
// the order in which they happened.
func (c *Checker) checkRegister(op *Op, e Event) {
	cell := &c.recordOf(op.Name).cell
	if !e.OK {
		c.stats.Stale++
		op.refused, op.by = e.T, cell.highest
		// The hold's process may have been stopped after it sent the request.
		// The claim is judged when its length is known.
		return
	}
	if e.Token < cell.highest {
		c.violations.add("C2", op.Name, e.T, fmt.Sprintf("the guard let token %d pass after %d", e.Token, cell.highest), op)
	}
	if e.What == Write {
		c.stats.Writes++
		if e.Value != cell.value+1 {
			c.violations.add("C2", op.Name, e.T, fmt.Sprintf("a write was lost: the register went from %d to %d", cell.value, e.Value), op)
		}
		cell.value = e.Value
	}
	cell.highest, cell.by = e.Token, op.Key
}

// checkRefusal judges a hold that the guard refused while it was entitled to
// write.
func (c *Checker) checkRefusal(op *Op) {
	if c.rules.Tokens && op.refused > op.Granted && op.refused < op.until() {
		name := "C2"
		if slices.Contains(c.rules.Exposed, "C1") { // the earlier one of two overlapping holders is refused
			name = "C1"
		}
		c.violations.add(name, op.Name, op.refused,
			fmt.Sprintf("the guard refused token %d of a hold that was valid: %d had passed", op.Token, op.by), op)
	}
}
