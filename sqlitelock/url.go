package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Options are settings of a [Driver]. The zero Options are good defaults.
type Options struct {
	// Sync is the moment at which a change must have reached the disk.
	Sync Sync
	// CreateDir creates the file's directory, with mode 0700, if it is missing.
	// Without CreateDir a missing directory is an error: a mistyped path would
	// be a store of its own.
	CreateDir bool
	// AnyFileSystem accepts a file on an apparent network file system. There,
	// locks exclude nobody unless SQLite's locking and shared memory work
	// between all the processes that use the file.
	AnyFileSystem bool

	noSweeps    bool        // for tests: no sweeps in the background
	noNotify    bool        // for tests: as if file notifications were exhausted
	later       *[][]string // for tests: sqlqueue.Dialect.ExtraChanges
	afterCreate *func()     // for tests: called in makeUsers and makeFolder
}

// Sync is the moment at which a change must have reached the disk.
type Sync int

const (
	// SyncFull is the default: a change is on the disk before its request is
	// answered.
	SyncFull Sync = iota
	// SyncNormal lets a change reach the disk some time after its request is
	// answered, which makes requests about three times as fast. If the machine
	// itself crashes, the last changes may be lost, and with them the order of
	// tokens, unless the wall clock is right. Holds are void in that case
	// anyway.
	SyncNormal
)

func (o *Options) check() error {
	if o.Sync != SyncFull && o.Sync != SyncNormal {
		return fmt.Errorf("option Sync is %d, which is neither SyncFull nor SyncNormal", o.Sync)
	}
	return nil
}

// ParseURL splits a URL into its path and its options. A URL has one of these
// forms:
//
//	sqlite:relative/path  sqlite:/absolute/path  sqlite:///absolute/path
//
// In the path %XX stands for a byte, as in every URL; a question mark and a
// percent sign must be written so. Options follow a question mark and are
// separated by &:
//
//	sync=full|normal   Options.Sync
//	dir=create         Options.CreateDir
//	fs=any             Options.AnyFileSystem
func ParseURL(rawURL string) (path string, o *Options, err error) {
	rest, ok := strings.CutPrefix(rawURL, "sqlite:")
	if !ok {
		return "", nil, errors.New("a URL of this store begins with sqlite: and a path")
	}
	rest, query, _ := strings.Cut(rest, "?")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		if !strings.HasPrefix(after, "/") {
			return "", nil, errors.New("sqlite:// is followed by an absolute path, as in sqlite:///var/lib/locks.db; a relative one is written sqlite:locks.db")
		}
		rest = after
	}
	if strings.HasPrefix(rest, "~/") {
		return "", nil, errors.New("the path begins with ~/, which a shell expands only at the beginning of a word: write sqlite:$HOME/... or the whole path")
	}
	if path, err = url.PathUnescape(rest); err != nil {
		return "", nil, fmt.Errorf("the path of the URL: %w: a percent sign is written %%25", err)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, fmt.Errorf("the options of the URL: %w", err)
	}
	o = new(Options)
	for key, vs := range values {
		if len(vs) > 1 {
			return "", nil, fmt.Errorf("option %s is given %d times", key, len(vs))
		}
		if err := o.set(key, vs[0]); err != nil {
			return "", nil, err
		}
	}
	return path, o, checkPath(path)
}

func (o *Options) set(key, value string) error {
	switch key + "=" + value {
	case "sync=full":
		o.Sync = SyncFull
	case "sync=normal":
		o.Sync = SyncNormal
	case "dir=create":
		o.CreateDir = true
	case "fs=any":
		o.AnyFileSystem = true
	default:
		switch key {
		case "sync":
			return fmt.Errorf("option sync is full or normal, not %q", value)
		case "dir":
			return fmt.Errorf("option dir is create, not %q", value)
		case "fs":
			return fmt.Errorf("option fs is any, not %q", value)
		}
		return fmt.Errorf("unknown option %q: there are sync, dir and fs", key)
	}
	return nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("the path of the file is empty: write sqlite:PATH")
	case strings.ContainsRune(path, 0):
		return errors.New("the path of the file contains a NUL byte")
	case path == ":memory:":
		return errors.New("a store in memory has no file; write memory: as its URL")
	case strings.HasSuffix(path, "/"), filepath.Base(path) == ".", filepath.Base(path) == "..":
		return errDirectory(path)
	}
	return nil
}

func errDirectory(path string) error {
	return fmt.Errorf("%s is a directory; the store is a file", path)
}

// OpenURL is [Open] with the path and options of a URL, see [ParseURL].
func OpenURL(ctx context.Context, rawURL string) (*Driver, error) {
	path, o, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() { // a wrong URL, whichever way it is written
		return nil, errDirectory(path)
	}
	return Open(ctx, path, o)
}
