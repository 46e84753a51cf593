package servers

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// memoryFolder returns the folder of a memory file system with enough room, or "".
func memoryFolder() string {
	const shm, tmpfs = "/dev/shm", 0x01021994
	leftovers.Do(func() { removeLeftoversIn(shm) })
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err != nil || fs.Type != tmpfs || fs.Bavail*uint64(fs.Bsize) < memoryRoom {
		return ""
	}
	return shm
}

// leftoverAge is the age from which a folder of a process that has ended is removed.
const leftoverAge = time.Hour

var leftovers sync.Once

// removeLeftoversIn removes the folders of tests that were killed: nobody else gives their
// memory back.
func removeLeftoversIn(shm string) {
	dirs, _ := filepath.Glob(filepath.Join(shm, "holdfast-*-*-*"))
	for _, dir := range dirs {
		parts := strings.Split(filepath.Base(dir), "-")
		pid, err := strconv.Atoi(parts[len(parts)-2])
		info, statErr := os.Stat(dir)
		if err == nil && statErr == nil && time.Since(info.ModTime()) > leftoverAge && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			os.RemoveAll(dir)
		}
	}
}
