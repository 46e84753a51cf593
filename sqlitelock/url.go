package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Options are settings of a [Driver]. The zero Options are good.
type Options struct {
	// Sync says when a change has reached the disk.
	Sync Sync
	// CreateDir makes the file's directory, with mode 0700, if it is missing.
	// Otherwise that is an error: a mistyped path would be a store of its own.
	CreateDir bool
	// AnyFileSystem takes a file on what looks like a network file system.
	// There, locks exclude nothing unless SQLite's locking and shared memory
	// work between all the processes that use the file.
	AnyFileSystem bool

	noNotify bool        // for tests: as if there were no notifications to be had
	later    *[][]string // for tests: sqlline.Dialect.Later
}

// Sync says when a change has reached the disk.
type Sync int

const (
	// SyncFull is the default: before the request is answered.
	SyncFull Sync = iota
	// SyncNormal: some time later. That makes requests about three times as
	// quick. If the machine itself crashes, the last changes may be lost, and
	// with them, unless the wall clock is right, the order of tokens; holds
	// are void then in any case.
	SyncNormal
)

func (o *Options) check() error {
	if o.Sync != SyncFull && o.Sync != SyncNormal {
		return fmt.Errorf("option Sync is %d, which is neither SyncFull nor SyncNormal", o.Sync)
	}
	return nil
}

// ParseURL takes a URL apart:
//
//	sqlite:relative/path  sqlite:/absolute/path  sqlite:///absolute/path
//
// In the path %XX stands for a byte, as in every URL; a question mark and a
// percent sign have to be written so. After a question mark come options,
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
	if path, err = url.PathUnescape(rest); err != nil {
		return "", nil, fmt.Errorf("the path of the URL: %w", err)
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
		return errors.New("the path of the file is empty")
	case strings.ContainsRune(path, 0):
		return errors.New("the path of the file contains a NUL byte")
	case path == ":memory:":
		return errors.New("a store in memory has no file; write memory: as its URL")
	case strings.HasSuffix(path, "/"):
		return fmt.Errorf("%s is a directory; the store is a file", path)
	}
	return nil
}

// OpenURL is [Open] with the path and options of a URL, see [ParseURL].
func OpenURL(ctx context.Context, rawURL string) (*Driver, error) {
	path, o, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return Open(ctx, path, o)
}
