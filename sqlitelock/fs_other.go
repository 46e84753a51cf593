//go:build !linux && !darwin

package sqlitelock

type fileSystem struct {
	name        string
	shared      bool
	free, files uint64
}

func fileSystemOf(string) (fileSystem, error) { return fileSystem{}, errNoBoot }
