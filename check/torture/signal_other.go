//go:build !unix

package torture

import "os/exec"

func dieWithParent(*exec.Cmd) {}

// Where processes cannot be stopped, a pause is none.
func (x *process) stop() {}

func (x *process) resume() {}
