//go:build unix

package cli

import (
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/cli/userstore"
)

// fileOptions are the options of URLs that name files, by scheme.
var fileOptions = map[string][]string{
	"rediss": tlsFiles, "rediss-sentinel": tlsFiles, "rediss-cluster": tlsFiles, "redlocks": tlsFiles, "etcds": tlsFiles, "zks": tlsFiles,
	"postgres": libpqFiles, "postgresql": libpqFiles,
	"mysql": mysqlFiles, "mariadb": mysqlFiles,
	"holdfast": serverFiles, "holdfasts": serverFiles, "holdfast-unix": serverFiles,
}

var (
	tlsFiles    = []string{"ca", "cert", "key"}
	libpqFiles  = []string{"sslrootcert", "sslcert", "sslkey", "passfile", "servicefile"}
	serverFiles = []string{"ca", "cert", "key", "token_file"}
	mysqlFiles  = []string{"tls_ca", "tls_cert", "tls_key", "socket"}
)

// absolute makes the paths in a URL (of a SQLite file, of certificates)
// independent of the working folder, so that the command of run can use the URL
// too. They are relative to dir, the folder of the file that the URL was read
// from, or to the working folder if dir is "".
func absolute(storeURL, dir string) (string, error) {
	scheme, rest, _ := strings.Cut(storeURL, ":")
	scheme = strings.ToLower(scheme)
	if scheme != "sqlite" && fileOptions[scheme] == nil {
		return storeURL, nil
	}
	if scheme == "sqlite" {
		if rest == "" || strings.ContainsRune("/:?", rune(rest[0])) || strings.HasPrefix(rest, "~/") {
			return storeURL, nil
		}
		dir, err := folder(dir)
		return userstore.FileURL(dir) + "/" + rest, err
	}
	before, query, ok := strings.Cut(storeURL, "?")
	if !ok {
		return storeURL, nil
	}
	options := strings.Split(query, "&")
	for i, o := range options {
		name, value, _ := strings.Cut(o, "=")
		path, err := neturl.QueryUnescape(value)
		if err != nil || path == "" || filepath.IsAbs(path) || !slices.Contains(fileOptions[scheme], name) ||
			name == "sslrootcert" && path == "system" { // a word of libpq
			continue
		}
		if dir, err = folder(dir); err != nil {
			return "", err
		}
		options[i] = name + "=" + escapePath.Replace(neturl.QueryEscape(filepath.Join(dir, path)))
	}
	return before + "?" + strings.Join(options, "&"), nil
}

// folder returns dir, or the working folder if dir is "". Only a relative path needs
// it: the working folder may have been removed.
func folder(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fail(exitUnavailable, "the working folder: %w", err)
	}
	return dir, nil
}

// escapePath makes an escaped path readable. It writes a space as %20, since some
// parsers take a plus sign literally.
var escapePath = strings.NewReplacer("%2F", "/", "+", "%20")
