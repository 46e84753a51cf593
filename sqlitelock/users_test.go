package sqlitelock

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

const nobody = 65534

// reachable creates a folder that every user can reach, with the test's binary
// in it.
func reachable(t *testing.T) (base string) {
	t.Helper()
	base, err := os.MkdirTemp("", "holdfast-rights-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	self, err := os.Executable()
	must(t, err)
	b, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(base, "test"), b, 0o755))
	must(t, os.Chmod(base, 0o755))
	return base
}

// as makes a child run as another user, with the binary in base.
func as(base string, user, group uint32) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Path = filepath.Join(base, "test")
		cmd.Dir = base
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: group, Groups: []uint32{group}}}
	}
}

// childWatch opens the file, listens, and takes a ticket of the name "watch".
// It reports its grant, and keeps the ticket until the test tells it to leave.
func childWatch(args []string) error {
	syscall.Umask(0o077)
	ctx := context.Background()
	d, err := Open(ctx, args[0], nil)
	if err != nil {
		return err
	}
	watchErr := d.Watch(ctx, func(string, driver.Status) {})
	findings, err := d.Check(ctx)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Topic == "wake-up" && f.Level != driver.OK {
			return fmt.Errorf("found by the check: %s; by Watch: %w", f.Detail, watchErr)
		}
	}
	if watchErr != nil {
		return watchErr
	}
	t := &driver.Ticket{ID: fmt.Sprintf("w:%d", os.Getpid()), Name: fmt.Sprint("watch ", os.Getuid()), Units: 1, Limit: 1, TTL: time.Minute}
	if _, err := d.Join(ctx, t, true); err != nil {
		return err
	}
	fmt.Println("holds")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	if _, err := d.Leave(ctx, []driver.Ref{{Ticket: t}}); err != nil {
		return err
	}
	fmt.Println("left")
	return d.Close()
}

// TestF129_OwnerServedAfterAnotherUser lets root, or another user of the group,
// open the database first. That process is killed and leaves its files beside
// the database. The owner of the database is served as usual.
func TestF129_OwnerServedAfterAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		servers.Lack(t, "other users are for root alone")
	}
	const friend, group = 65533, 65000
	base := reachable(t)
	for name, c := range map[string]struct {
		first [2]uint32
		mode  fs.FileMode
	}{
		"root":                    {[2]uint32{0, 0}, 0o600},
		"root, a group's file":    {[2]uint32{0, 0}, 0o660},
		"another of the group":    {[2]uint32{friend, group}, 0o660},
		"the owner":               {[2]uint32{nobody, group}, 0o600},
		"the owner, in a group's": {[2]uint32{nobody, group}, 0o660},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
			must(t, os.Mkdir(dir, 0o700))
			must(t, os.Chmod(dir, 0o777))
			path := filepath.Join(dir, "locks.db")
			must(t, openAt(t, path, nil).Close())
			must(t, os.Remove(path+"-open"))
			must(t, os.Chown(path, nobody, group))
			must(t, os.Chmod(path, c.mode))

			first := spawn(t, as(base, c.first[0], c.first[1]), "watch", path)
			first.expect("holds")
			first.kill()
			owner := spawn(t, as(base, nobody, group), "watch", path)
			owner.expect("holds")
			if c.mode&0o060 != 0 {
				member := spawn(t, as(base, friend, group), "watch", path)
				member.expect("holds")
				member.say("leave")
				member.expect("left")
				member.end()
			}
			owner.say("leave")
			owner.expect("left")
			owner.end()
		})
	}
}

// TestF129_ForeignWakeFolder checks that a wake folder which belongs to another
// user, and is in use, costs the wake-ups but not the locks, and that Check
// reports it.
func TestF129_ForeignWakeFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		servers.Lack(t, "other users are for root alone")
	}
	base := reachable(t)
	dir := filepath.Join(base, "folder")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chmod(dir, 0o777))
	path := filepath.Join(dir, "locks.db")
	must(t, openAt(t, path, nil).Close())
	for _, name := range []string{path, path + "-open"} {
		must(t, os.Chown(name, nobody, nobody))
	}
	must(t, os.Mkdir(path+"-wake", 0o700))
	must(t, os.WriteFile(filepath.Join(path+"-wake", strings.Repeat("a", addressLen)), nil, 0o600))
	child := spawn(t, as(base, nobody, nobody), "open", path)
	child.expect("ready")
	child.say("go")
	child.expect(driver.Held.String())
	child.end()
	watch := spawn(t, as(base, nobody, nobody), "watch", path)
	const want = "error: found by the check: unavailable, so waiters poll: open "
	if s := watch.line(); !strings.HasPrefix(s, want) || strings.Count(s, "permission denied") != 2 {
		t.Errorf("the child says %q", s)
	}
}
