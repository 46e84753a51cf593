package checker

import (
	"fmt"
	"time"
)

// lossKey identifies a loss in the observer's reports.
type lossKey struct {
	life
	name  string
	token uint64
}

// loss counts the reports of a loss, by contexts and by the observer. Readers
// of one process may have one token.
type loss struct{ told, notices int }

func (c *Checker) lossOf(k lossKey) *loss {
	x := c.told[k]
	if x == nil {
		x = &loss{}
		c.told[k] = x
	}
	return x
}

// checkLoss applies the part of C6 about a single hold, when all about it is
// known.
func (c *Checker) checkLoss(op *Op) {
	c.checkRefusal(op)
	if op.Told > 0 {
		if op.DoneErr == "" && op.Done > 0 && op.Told < op.Out {
			c.violations.add("C6", op.Name, op.Told, "the loss of a hold was told, and then its release succeeded", op)
		}
		if op.ToldToken != op.Token || op.ToldWhy == "" {
			c.violations.add("C6", op.Name, op.Told, fmt.Sprintf("the loss of token %d was told with token %d, reason %q", op.Token, op.ToldToken, op.ToldWhy), op)
		}
		late := op.Told - op.Claim - c.disturbances.absentTime(op.P, op.Claim, op.Told)
		if late > int64(Late+c.rules.Slack) {
			c.violations.add("C6", op.Name, op.Told, fmt.Sprintf("the loss was told %v after the claim had ended", time.Duration(late)), op)
		}
	}
	if op.OutErr == "lost" && op.DoneErr == "" && op.Done > 0 {
		c.violations.add("C6", op.Name, op.Done, "Err said that it was lost, and Unlock that it was released", op)
	}
	// The claim may have been renewed once after its end was last read.
	if op.Out > 0 && op.Done > 0 && op.DoneErr == "" && op.Out > op.Claim+int64(c.rules.TTL) && op.OutErr == "" {
		c.violations.add("C6", op.Name, op.Out, "Unlock said that it was held until then, after the claim had ended", op)
	}
}

// checkLossReports applies the part of C6 that counts: each loss is reported
// once.
func (c *Checker) checkLossReports() {
	for k, x := range c.told {
		switch {
		case x.notices > x.told && !c.killed[k.life]:
			c.violations.add("C6", k.name, 0, fmt.Sprintf("process %d.%d, token %d: %d losses, told %d times", k.p, k.k, k.token, x.told, x.notices))
		case x.notices < x.told && !c.killed[k.life]:
			c.violations.add("C6", k.name, 0, fmt.Sprintf("process %d.%d, token %d: %d losses, the observer was told %d times", k.p, k.k, k.token, x.told, x.notices))
		}
	}
}
