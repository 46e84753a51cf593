package sqlitelock

import "testing"

// Every kind of network file system that has a number of its own is known.
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
	for dir, want := range map[string]string{"/proc": "proc", "/proc/self": "proc"} {
		if name := mountType(dir); name != want {
			t.Errorf("%s is of type %q, want %q", dir, name, want)
		}
	}
}
