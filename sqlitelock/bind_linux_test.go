package sqlitelock

import (
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// bind mounts the file or folder from at to, until unmount is called. Only root
// may mount: otherwise the test reports that, and fails if CI is set.
func bind(t drivertest.T, from, to string) (unmount func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		servers.Lack(t.(testing.TB), "files are mounted by root alone")
	}
	must(t, os.NewSyscallError("mount", unix.Mount(from, to, "", unix.MS_BIND, "")))
	var once sync.Once
	return func() { once.Do(func() { must(t, os.NewSyscallError("umount", unix.Unmount(to, unix.MNT_DETACH))) }) }
}
