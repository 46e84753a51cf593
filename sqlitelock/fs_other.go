//go:build !linux && !darwin

package sqlitelock

type fileSystem struct {
	name        string
	shared      bool
	unknown     bool
	free, files uint64
}

func fileSystemOf(string) (fileSystem, error) { return fileSystem{}, errNoBoot }

func mounted(string) bool { return false }
