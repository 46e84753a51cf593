package sqlitelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// childMakes opens the file and creates a mailbox. After creating a given
// number of files it kills itself, before it gives the last one away.
func childMakes(args []string) error {
	left, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	made := func() {
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	d, err := Open(context.Background(), args[0], &Options{afterCreate: &made})
	if err != nil {
		return err
	}
	_, _, err = d.beside.mailbox()
	return errors.Join(err, errors.New("made fewer files"))
}

// foreign creates a database of the user nobody, in a folder that everybody may
// write to.
func foreign(t *testing.T) (base, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		servers.Lack(t, "other users are for root alone")
	}
	base = reachable(t)
	dir := filepath.Join(base, "folder")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chmod(dir, 0o777))
	path = filepath.Join(dir, "locks.db")
	must(t, openAt(t, path, nil).Close())
	must(t, os.Remove(path+"-open"))
	must(t, os.Chown(path, nobody, nobody))
	return base, path
}

// TestF129_KilledBeforeGivingAFileAway kills root after it created a file
// beside the database, and before it gave that file to the database's owner.
// The owner is served all the same.
func TestF129_KilledBeforeGivingAFileAway(t *testing.T) {
	for file, name := range []string{"users", "wake folder"} {
		t.Run(name, func(t *testing.T) {
			base, path := foreign(t)
			root := spawn(t, nil, "makes", path, strconv.Itoa(file+1))
			for s := range root.lines {
				t.Fatalf("the child says %q", s)
			}
			owner := spawn(t, as(base, nobody, nobody), "watch", path)
			owner.expect("holds")
			owner.say("leave")
			owner.expect("left")
			owner.end()
			names, err := os.ReadDir(filepath.Dir(path))
			must(t, err)
			for _, e := range names {
				if n := e.Name(); n != "locks.db" && n != "locks.db-open" {
					t.Errorf("%s is left behind", n)
				}
			}
		})
	}
}

// victim is a file or folder of root's that must not change.
type victim struct {
	path    string
	info    fs.FileInfo
	content string
}

func newVictim(t *testing.T, path, content string) *victim {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o640))
	info, err := os.Stat(path)
	must(t, err)
	return &victim{path, info, content}
}

func (v *victim) check(t *testing.T) {
	t.Helper()
	info, err := os.Stat(v.path)
	must(t, err)
	b, err := os.ReadFile(v.path)
	must(t, err)
	is, was := info.Sys().(*syscall.Stat_t), v.info.Sys().(*syscall.Stat_t)
	if is.Mode != was.Mode || is.Uid != was.Uid || string(b) != v.content {
		t.Errorf("%s has mode %o, user %d, and %q in it", v.path, is.Mode, is.Uid, b)
	}
}

// TestF129_RootFollowsNoLinks puts links of the database's owner where root
// looks for files beside the database. The targets keep their owner, mode and
// content, and root creates its files in no other folder.
func TestF129_RootFollowsNoLinks(t *testing.T) {
	ctx := context.Background()
	address := strings.Repeat("a", addressLen)
	elsewhere := func(t *testing.T, base string) (dir string, v *victim) {
		t.Helper()
		dir = filepath.Join(base, "elsewhere")
		must(t, os.Mkdir(dir, 0o750))
		return dir, newVictim(t, filepath.Join(dir, address), "precious")
	}
	untouched := func(t *testing.T, dir string, v *victim) {
		t.Helper()
		v.check(t)
		info, err := os.Stat(dir)
		must(t, err)
		if st := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o750 || st.Uid != 0 {
			t.Errorf("the folder has mode %v, user %d", info.Mode(), st.Uid)
		}
		if in, err := os.ReadDir(dir); err != nil || len(in) != 1 {
			t.Errorf("in the folder are %v, %v", in, err)
		}
	}
	t.Run("wake folder", func(t *testing.T) {
		base, path := foreign(t)
		dir, v := elsewhere(t, base)
		must(t, os.Symlink(dir, path+"-wake"))
		d := openAt(t, path, nil)
		if _, _, err := d.beside.mailbox(); err == nil || !strings.Contains(err.Error(), "the path exists and is no directory") {
			t.Errorf("mailbox: %v", err)
		}
		d.beside.appendPush(pushTo(address))
		untouched(t, dir, v)
	})
	t.Run("wake folder, exchanged", func(t *testing.T) {
		base, path := foreign(t)
		dir, v := elsewhere(t, base)
		made := func() {}
		d := openAt(t, path, &Options{afterCreate: &made})
		made = func() {
			must(t, os.Remove(path+"-wake"))
			must(t, os.Symlink(dir, path+"-wake"))
		}
		if _, _, err := d.beside.mailbox(); err == nil {
			t.Error("made a mailbox")
		}
		untouched(t, dir, v)
	})
	t.Run("mailbox", func(t *testing.T) {
		base, path := foreign(t)
		_, v := elsewhere(t, base)
		d := openAt(t, path, nil)
		f, _, err := d.beside.mailbox()
		must(t, err)
		defer func() { _ = f.Close() }()
		link := filepath.Join(d.beside.folder(), address)
		for _, make := range []func(string, string) error{os.Link, os.Symlink} {
			must(t, make(v.path, link))
			d.beside.appendPush(pushTo(address))
			v.check(t)
			must(t, os.Remove(link))
		}
	})
	t.Run("users", func(t *testing.T) {
		base, path := foreign(t)
		_, v := elsewhere(t, base)
		for how, make := range map[string]func(string, string) error{
			"names (hard links)": os.Link, "too many levels of symbolic links": os.Symlink,
		} {
			must(t, make(v.path, path+"-open"))
			d, err := Open(ctx, path, nil)
			if err == nil {
				must(t, d.Close())
			}
			if err == nil || !strings.Contains(err.Error(), how) {
				t.Errorf("Open: %v", err)
			}
			v.check(t)
			must(t, os.Remove(path+"-open"))
		}
	})
}

// pushTo returns a push to the client at address.
func pushTo(address string) sqlqueue.Push {
	return sqlqueue.Push{Wake: address, ID: "a:1", Status: driver.Status{State: driver.Gone}}
}

// TestF129_ErrorsOfFileLocksAreNotBusy checks that a file lock which fails for
// another reason than contention is reported at once, without waiting.
func TestF129_ErrorsOfFileLocksAreNotBusy(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	other, err := os.Open(f.Name())
	must(t, err)
	defer func() { _ = other.Close() }()
	if mine, err := lockExclusive(f); err != nil || !mine {
		t.Errorf("a free file: %v, %v", mine, err)
	}
	for what, take := range map[string]func(*os.File) (bool, error){"own": lockExclusive, "share": lockShared} {
		if mine, err := take(other); err != nil || mine {
			t.Errorf("%s a busy file: %v, %v", what, mine, err)
		}
	}
	must(t, f.Close())
	for what, take := range map[string]func(*os.File) (bool, error){"own": lockExclusive, "share": lockShared} {
		if mine, err := take(f); !errors.Is(err, syscall.EBADF) || mine {
			t.Errorf("%s a closed file: %v, %v", what, mine, err)
		}
	}
	err = register(f, "boot")
	if driver.ClassOf(err) != driver.Unavailable || errors.Is(err, errBusy) || !errors.Is(err, syscall.EBADF) {
		t.Errorf("register: %v", err)
	}
}
