package servers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestLeftoversAreRemoved makes folders of a process that has ended and of this one.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	folder := func(kind string, pid int, age time.Duration) string {
		name := filepath.Join(dir, "holdfast-"+kind+"-"+strconv.Itoa(pid)+"-123")
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
		return name
	}
	gone := folder("etcd", ended.ProcessState.Pid(), 2*leftoverAge)
	kept := []string{
		folder("redis", ended.ProcessState.Pid(), leftoverAge/2), // in another PID namespace perhaps
		folder("etcd", os.Getpid(), 2*leftoverAge),
	}
	removeLeftoversIn(dir)
	if _, err := os.Stat(gone); err == nil {
		t.Error("the folder of a process that has ended was kept")
	}
	for _, name := range kept {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}
