//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/cli/userstore"
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
		if l.url, err = userstore.URL(); err != nil {
			return l, fail(exitUnavailable, "%w; give a store with --store or %s", err, storeVar)
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
	return userstore.FileURL(dir) + "/" + rest, nil
}

// open opens the store.
func (a *app) open(ctx context.Context, opts ...holdfast.Option) (*holdfast.Client, location, error) {
	l, err := a.locate()
	if err != nil {
		return nil, l, err
	}
	a.warn(l)
	c, err := anylock.Open(ctx, l.url, opts...)
	if err != nil {
		if by, ok := context.Cause(ctx).(*endedBy); ok {
			err = by
		}
		return nil, l, err
	}
	return c, l, nil
}

// warn says, before anything is sent, that somebody has chosen an option by
// which the way to the store is not protected.
func (a *app) warn(l location) {
	t, _ := transportOf(l.url)
	switch w := t.warning(); {
	case w == "":
	case a.json:
		a.errJSON(struct {
			Event  string `json:"event"`
			Detail string `json:"detail"`
			Advice string `json:"advice"`
		}{"warning", w, t.advice})
	default:
		fmt.Fprintf(a.stderr(), "holdfast: warning: %s (instead: %s)\n", w, t.advice)
	}
}
