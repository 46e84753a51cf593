//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

const storeVar = "HOLDFAST_STORE"

// location is the store that a command uses.
type location struct {
	url  string
	from string // where the URL was found, for people
	argv bool   // it stood on the command line, where other users can read it
}

// shown is the URL without secrets.
func (l location) shown() string { return clean(anylock.Redact(l.url)) }

// locate finds the store: --store, --store-file, the environment, or the file
// that every user has.
func (a *app) locate() (location, error) {
	l := location{from: "the default"}
	var err error
	switch env := os.Getenv(storeVar); {
	case a.store != "" && a.storeFile != "":
		return l, usage("--store and --store-file are given both")
	case a.store != "":
		l = location{a.store, "--store", !strings.HasPrefix(a.store, "@")}
	case a.storeFile != "":
		l = location{"@" + a.storeFile, "--store-file", false}
	case env != "":
		l = location{env, storeVar, false}
	default:
		if l.url, err = defaultStore(); err != nil {
			return l, err
		}
	}
	if file, ok := strings.CutPrefix(l.url, "@"); ok {
		if l.url, err = readStoreFile(file); err != nil {
			return l, err
		}
	}
	if strings.Contains(l.url, ":"+anylock.Hidden+"@") {
		return l, usage("the password in %s was taken out by the holdfast run that started this command: give the store by --store-file", l.from)
	}
	l.url, err = absolute(l.url)
	return l, err
}

// readStoreFile reads a URL from the first line of a file.
func readStoreFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", usage("the store's URL: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 16<<10))
	if err != nil {
		return "", usage("the store's URL: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", usage("the store's URL: the first line of %s is empty", name)
	}
	return line, nil
}

// defaultStore is a file in the user's own folder for state, which is made if
// it is missing.
func defaultStore() (string, error) {
	dir, err := stateDir(runtime.GOOS, os.Getenv, os.UserHomeDir)
	if err != nil {
		return "", fail(exitUnavailable, "there is no folder for the default store: %w; give one with --store or %s", err, storeVar)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fail(exitUnavailable, "the folder of the default store: %w; give another store with --store or %s", err, storeVar)
	}
	return fileURL(filepath.Join(dir, "locks.db")), nil
}

// stateDir is where programs keep what is no configuration and no cache: see
// the XDG Base Directory Specification, and Apple's File System Programming
// Guide.
func stateDir(system string, getenv func(string) string, home func() (string, error)) (string, error) {
	// A relative path is to be ignored, says the specification.
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "holdfast"), nil
	}
	h, err := home()
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(h) {
		return "", fmt.Errorf("the home folder %q is no absolute path", h)
	}
	if system == "darwin" {
		return filepath.Join(h, "Library", "Application Support", "holdfast"), nil
	}
	return filepath.Join(h, ".local", "state", "holdfast"), nil
}

func fileURL(path string) string { return "sqlite:" + (&url.URL{Path: path}).EscapedPath() }

// absolute makes the path of a SQLite store independent of the working folder,
// so that the command that is run can use the URL too.
func absolute(storeURL string) (string, error) {
	rest, ok := strings.CutPrefix(storeURL, "sqlite:")
	if !ok || rest == "" || strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "?") {
		return storeURL, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fail(exitUnavailable, "the working folder: %w", err)
	}
	return fileURL(dir) + "/" + rest, nil
}

// open opens the store.
func (a *app) open(ctx context.Context, opts ...holdfast.Option) (*holdfast.Client, location, error) {
	l, err := a.locate()
	if err != nil {
		return nil, l, err
	}
	c, err := anylock.Open(ctx, l.url, opts...)
	if err != nil {
		if by, ok := context.Cause(ctx).(*endedBy); ok {
			err = by
		}
		return nil, l, err
	}
	return c, l, nil
}
