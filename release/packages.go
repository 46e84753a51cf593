package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// copyright is Debian's summary of the licences in a package.
const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: holdfast
Source: https://github.com/holdfast-go/holdfast

Files: *
Copyright: the Holdfast authors
License: Apache-2.0
 On Debian systems, the full text is in /usr/share/common-licenses/Apache-2.0.
Comment:
 The binary contains modules of others; their licences are in
 /usr/share/doc/holdfast/THIRD_PARTY_LICENSES.
`

// description is the first line of what packages say about themselves.
const description = "locks that processes and machines share"

// makePackages makes a deb, an rpm and an apk for each target on Linux.
func (r *release) makePackages() error {
	for _, t := range r.targets {
		if t.os != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm", "apk"} {
			if err := r.makePackage(t, format); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) makePackage(t target, format string) error {
	contents, err := r.contents(t, format)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "holdfast", Arch: t.arch, Platform: t.os, Version: r.version, Release: "1",
		Section: "admin", Priority: "optional", Maintainer: "The Holdfast authors <holdfast-go@users.noreply.github.com>",
		Description: description + "\n" +
			"Holdfast holds named locks in a store that processes and machines share: Redis,\n" +
			"Valkey, etcd, ZooKeeper, PostgreSQL, MySQL, MariaDB, or a SQLite file. It runs a\n" +
			"command while holding a lock, renews the lock, and stops the command when the\n" +
			"lock is lost.",
		Homepage: "https://github.com/holdfast-go/holdfast", License: "Apache-2.0",
		DisableGlobbing: true, MTime: r.date,
		Overridables: nfpm.Overridables{
			Recommends: []string{"ca-certificates"}, Contents: contents,
			RPM: nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Base", Summary: "Locks that processes and machines share"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	if format == "apk" { // whose versions have no dot after _rc, and whose description is one line
		info.Prerelease = strings.ReplaceAll(info.Prerelease, ".", "")
		info.Description = description
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := packager.Package(info, &b); err != nil {
		return err
	}
	return os.WriteFile(r.path(packager.ConventionalFileName(info)), b.Bytes(), 0o644)
}

// contents returns the files of a package. Manual pages and the change log are
// compressed, as both kinds of distribution want them.
func (r *release) contents(t target, format string) (files.Contents, error) {
	texts, err := r.texts()
	if err != nil {
		return nil, err
	}
	docs, zsh := "/usr/share/doc/holdfast/", "/usr/share/zsh/vendor-completions/"
	if format != "deb" {
		zsh = "/usr/share/zsh/site-functions/"
	}
	all := files.Contents{r.content(r.binaryOf(t), "/usr/bin/holdfast", 0o755)}
	if format == "rpm" { // folders that no package has stay after its removal
		for _, folder := range []string{docs, "/usr/share/licenses/holdfast/"} {
			owned := r.content("", folder, 0o755)
			owned.Type = files.TypeDir
			all = append(all, owned)
		}
	}
	add := func(to string, data []byte) error {
		from := filepath.Join(r.stage, format, filepath.FromSlash(to))
		if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
			return err
		}
		all = append(all, r.content(from, to, 0o644))
		return os.WriteFile(from, data, 0o644)
	}
	for _, e := range texts {
		to, data := docs+e.name, e.data
		switch name := filepath.Base(e.name); {
		case strings.HasPrefix(e.name, "man/"):
			to = "/usr/share/man/man1/" + name + ".gz"
		case name == "CHANGELOG.md":
			to = docs + "changelog.gz"
		case name == "holdfast.fish":
			to = "/usr/share/fish/vendor_completions.d/" + name
		case name == "_holdfast":
			to = zsh + name
		case strings.HasPrefix(e.name, "completions/"):
			to = "/usr/share/bash-completion/completions/" + name
		case name == "LICENSE" && format != "deb":
			to = "/usr/share/licenses/holdfast/" + name
		case name == "LICENSE":
			to, data = docs+"copyright", []byte(copyright)
		}
		if strings.HasSuffix(to, ".gz") {
			if data, err = compressed(data); err != nil {
				return nil, err
			}
		}
		if err := add(to, data); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (r *release) content(from, to string, mode fs.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, FileInfo: &files.ContentFileInfo{
		Owner: "root", Group: "root", Mode: mode, MTime: r.date,
	}}
}
