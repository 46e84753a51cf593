//go:build !unix

package torture

import "os/exec"

func dieWithParent(*exec.Cmd) {}

// stop does nothing: processes cannot be stopped here, so a pause has no
// effect.
func (x *process) stop() {}

func (x *process) resume() {}
