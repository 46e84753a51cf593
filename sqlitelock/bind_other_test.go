//go:build !linux

package sqlitelock

import (
	"testing"

	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// bind stands for a mount of a file or folder, which only Linux supports.
func bind(t drivertest.T, _, _ string) (unmount func()) {
	t.Helper()
	servers.Lack(t.(testing.TB), "files are mounted on Linux alone")
	return func() {}
}
