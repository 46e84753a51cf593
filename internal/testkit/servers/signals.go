//go:build unix

package servers

import (
	"os"
	"os/signal"
	"syscall"
)

// DefaultSignals makes the processes that tests start receive the signals that
// end programs. Otherwise they would ignore the signals that this process was
// told to ignore, as in the background of a script or by nohup. This process
// goes on ignoring them.
func DefaultSignals() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // a handler is not inherited
		}
	}
}
