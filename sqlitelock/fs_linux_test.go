package sqlitelock

import (
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// TestFileSystems checks that every kind of network file system with a number
// of its own is known.
func TestFileSystems(t *testing.T) {
	shared := 0
	for magic, fs := range fileSystems {
		if fs.name == "" || magic == fuseMagic {
			t.Errorf("%#x: %+v", magic, fs)
		}
		if fs.shared {
			shared++
		}
	}
	if shared < 15 {
		t.Errorf("only %d are shared", shared)
	}
	// An unknown file system is accepted, with a warning from Check.
	if where, err := fileSystemOf("/proc"); err != nil || where.shared || where.finding("/proc/x").Level != driver.Warning {
		t.Errorf("/proc: %+v, %v", where, err)
	}
	for dir, want := range map[string]string{"/proc": "proc", "/proc/self": "proc"} {
		if _, name := mountOf(dir); name != want {
			t.Errorf("%s is of type %q, want %q", dir, name, want)
		}
	}
}
