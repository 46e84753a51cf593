package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// preload builds, in dir, a library from C source for the LD_PRELOAD of a
// server, and returns its path. It needs a C compiler.
func preload(t testing.TB, dir, name string, source []byte) string {
	t.Helper()
	gcc := Find(t, "HOLDFAST_CC", "gcc and libc6-dev", "gcc", "cc")
	library, file := filepath.Join(dir, name+".so"), filepath.Join(dir, name+".c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-o", library, file).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return library
}
