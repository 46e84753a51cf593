// Package userstore knows the store of a user who has named none: a SQLite file
// in the user's own folder for state.
package userstore

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
)

// URL returns the URL of the user's store. It makes the folder that the file is
// in, for this user alone, if it is missing; opening the store makes the file.
// The error says that there is no such folder, or that it cannot be made.
func URL() (string, error) {
	dir, err := stateDir(runtime.GOOS, os.Getenv, os.UserHomeDir)
	if err != nil {
		return "", fmt.Errorf("there is no folder for the default store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("the folder of the default store: %w", err)
	}
	return FileURL(filepath.Join(dir, "locks.db")), nil
}

// FileURL returns the URL of the SQLite file at a path.
func FileURL(path string) string { return "sqlite:" + (&url.URL{Path: path}).EscapedPath() }

// stateDir returns the folder for data that is neither configuration nor cache;
// see the XDG Base Directory Specification and Apple's File System Programming
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
