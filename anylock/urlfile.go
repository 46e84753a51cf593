package anylock

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxURL is the length of the longest URL that is read from a file.
const maxURL = 16 << 10

// ReadURL returns the URL that Open opens: for @FILE the first line of that file,
// without space around it, else url itself. A file that cannot be read, and an
// empty URL, are errors that match ErrConfig.
func ReadURL(url string) (string, error) {
	name, inFile := strings.CutPrefix(url, "@")
	switch {
	case url == "":
		return "", &configError{errors.New("anylock: the URL is empty: give a store, such as redis://localhost:6379")}
	case !inFile:
		return url, nil
	case name == "":
		return "", &configError{errors.New("anylock: the URL is @ without the name of a file")}
	}
	f, err := os.Open(name)
	if err != nil {
		if likeURL(name) {
			return "", &configError{errors.New("anylock: the store's URL: @ begins the name of a file, and this one, which contains a colon or another @, cannot be read: check the name, or write the scheme of a URL before its user")}
		}
		if p, ok := errors.AsType[*fs.PathError](err); ok { // its text begins with "open", as that of Open does
			err = p.Err
		}
		return "", &configError{fmt.Errorf("anylock: the store's URL: the file %s: %w", name, err)}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxURL+1))
	if err != nil {
		return "", &configError{fmt.Errorf("anylock: the store's URL: %w", err)}
	}
	first, _, _ := strings.Cut(string(b), "\n")
	if len(first) > maxURL {
		return "", &configError{fmt.Errorf("anylock: the store's URL: the first line of %s is longer than %d bytes", name, maxURL)}
	}
	if strings.HasPrefix(first, "\ufeff") {
		return "", &configError{fmt.Errorf("anylock: the store's URL: %s begins with a byte-order mark: write it as UTF-8 without one", name)}
	}
	if first = strings.TrimSpace(first); first == "" {
		return "", &configError{fmt.Errorf("anylock: the store's URL: the first line of %s is empty", name)}
	}
	return first, nil
}

// likeURL reports whether the name of a file may be a part of a URL with a password:
// @user:password@host without its scheme, or without its user and host.
func likeURL(name string) bool { return strings.ContainsAny(name, ":@") }
