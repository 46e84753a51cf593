package check

import (
	"fmt"
	"slices"
)

// regCell is what the history says of a name's register.
type regCell struct {
	value   int64
	highest uint64
	by      Key
}

// register is C2. The register's own process stamps the events, in the order in
// which they happened.
func (c *Checker) register(op *Op, e Event) {
	cell := &c.line(op.Name).cell
	if !e.OK {
		c.stats.Stale++
		op.refused, op.by = e.T, cell.highest
		// A hold's process may have stopped since it sent: the claim is judged
		// when it is known how long it lasted.
		return
	}
	if e.Token < cell.highest {
		c.violate("C2", op.Name, e.T, fmt.Sprintf("the guard let token %d pass after %d", e.Token, cell.highest), op)
	}
	if e.What == Write {
		c.stats.Writes++
		if e.Value != cell.value+1 {
			c.violate("C2", op.Name, e.T, fmt.Sprintf("a write was lost: the register went from %d to %d", cell.value, e.Value), op)
		}
		cell.value = e.Value
	}
	cell.highest, cell.by = e.Token, op.Key
}

// refusal judges a hold that the guard refused while it was entitled to write.
func (c *Checker) refusal(op *Op) {
	if c.rules.Tokens && op.refused > op.Granted && op.refused < op.until() {
		name := "C2"
		if slices.Contains(c.rules.Exposed, "C1") { // who holds with another is refused if it came first
			name = "C1"
		}
		c.violate(name, op.Name, op.refused,
			fmt.Sprintf("the guard refused token %d of a hold that was valid: %d had passed", op.Token, op.by), op)
	}
}
