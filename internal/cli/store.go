//go:build unix

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/cli/userstore"
)

const storeVar = "HOLDFAST_STORE"

// location is the store that a command uses.
type location struct {
	url       string
	from      string // where the URL was found, for people
	argv      bool   // it was on the command line, where other users can read it
	file      string // the file that it was read from, as an absolute path; empty for none
	isDefault bool   // no store was given, and this is the user's own
}

// shown returns the URL without secrets.
func (l location) shown() string { return printable(anylock.Redact(l.url)) }

// storeGiven reports whether a flag or the environment gives a store, even an
// empty one.
func (a *app) storeGiven() bool {
	_, env := os.LookupEnv(storeVar)
	return env || a.flagGiven("store") || a.flagGiven("store-file")
}

// flagGiven reports whether a flag that all verbs have is on the command line.
func (a *app) flagGiven(flag string) bool { return a.root.PersistentFlags().Changed(flag) }

// locate finds the store: --store, --store-file, the environment, or the file
// that every user has. It refuses a store that is given and empty: that comes
// from an unset variable, and another store would exclude nobody.
func (a *app) locate() (location, error) {
	var l location
	env, inEnv := os.LookupEnv(storeVar)
	switch {
	case a.flagGiven("store") && a.flagGiven("store-file"):
		return l, usage("--store and --store-file are given both")
	case a.flagGiven("store"):
		l = location{url: a.store, from: "--store", argv: !strings.HasPrefix(a.store, "@")}
	case a.flagGiven("store-file"):
		l = location{url: "@" + a.storeFile, from: "--store-file"}
	case inEnv:
		l = location{url: env, from: storeVar}
	default:
		l = location{from: "the default", isDefault: true}
		var err error
		if l.url, err = userstore.URL(); err != nil {
			return l, fail(exitUnavailable, "%w; give a store with --store or %s", err, storeVar)
		}
	}
	if l.url == "" || l.url == "@" {
		return l, usage("%s is set and empty: give a store, or leave it out for the user's own store on this machine", l.from)
	}
	dir := ""
	if file, ok := strings.CutPrefix(l.url, "@"); ok {
		var err error
		if l.url, err = anylock.ReadURL(l.url); err != nil {
			return l, err
		}
		if l.file, err = rereadablePath(file); err != nil {
			return l, fail(exitUnavailable, "the store's URL: %w", err)
		}
		if l.file != "" {
			dir = filepath.Dir(l.file)
		}
	}
	if strings.Contains(l.url, ":"+anylock.Hidden+"@") {
		return l, usage("the password in %s was taken out by the holdfast run that started this command: give the store by --store-file", l.from)
	}
	var err error
	l.url, err = absolute(l.url, dir)
	return l, err
}

// rereadablePath returns the absolute path of a file that another process can
// read too, and "" for a pipe and the like, which can be read only once.
func rereadablePath(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	return filepath.Abs(name)
}

// environmentValue returns HOLDFAST_STORE for the command of run: the file that
// the URL was read from, or else the URL without its password. Without the
// variable a nested holdfast would silently lock in another store.
func (l location) environmentValue() string {
	if l.file != "" {
		return "@" + l.file
	}
	return anylock.Redact(l.url)
}

// open opens the store.
func (a *app) open(ctx context.Context, opts ...holdfast.ClientOption) (*holdfast.Client, location, error) {
	l, err := a.locate()
	if err != nil {
		return nil, l, err
	}
	a.warnTransport(l)
	a.console.printDefaultStore(l)
	c, err := anylock.Open(ctx, l.url, opts...)
	if err != nil {
		if by, ok := context.Cause(ctx).(*signalError); ok {
			err = by
		}
		return nil, l, err
	}
	return c, l, nil
}

// warnTransport warns, before anything is sent, of an option by which the
// connection to the store is not protected.
func (a *app) warnTransport(l location) {
	t, _ := transportOf(l.url)
	if w := t.warning(); w != "" {
		a.console.printWarning(w, t.advice)
	}
}
