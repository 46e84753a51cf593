package servers

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// folderVar names the environment variable with the folder below which the servers of
// tests keep their files.
const folderVar = "HOLDFAST_TEST_FOLDER"

// memoryRoom is the free space that a memory file system must have to be used: the
// packages that are tested at the same time have a dozen servers at most, of some
// 150 MB each.
const memoryRoom = 6 << 30

// newFolder makes a folder for a server's files; the caller removes it. In tests it is on
// a memory file system that has room. On a disk that a dozen servers share, a write to
// one of them takes seconds now and then, longer than the leases of most tests. The
// bench, which is no test, measures on the disk. HOLDFAST_TEST_FOLDER names another
// place.
func newFolder(kind string) (string, error) {
	below := os.Getenv(folderVar)
	if below == "" && testing.Testing() {
		below = memoryFolder()
	}
	return os.MkdirTemp(below, fmt.Sprintf("holdfast-%s-%d-", kind, os.Getpid()))
}

// testFolder makes a folder as newFolder does, which is removed when the test has ended.
func testFolder(t testing.TB, kind string) string {
	t.Helper()
	dir, err := newFolder(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// copyData copies the data folder of a server that does not run: to create one takes
// seconds.
func copyData(from, to string) error {
	if out, err := exec.Command("cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	return nil
}
