package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine describes where a run was made: the system and its processors.
func Machine() string {
	text := fmt.Sprintf("%s/%s, %s", runtime.GOOS, runtime.GOARCH, many(runtime.NumCPU(), "processor"))
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				text += ", " + strings.TrimSpace(strings.TrimLeft(name, " \t:"))
				break
			}
		}
	}
	return text
}
