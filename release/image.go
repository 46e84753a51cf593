package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// passwd names the user of the image, for programs that look for a home folder.
const passwd = "root:x:0:0:root:/root:/sbin/nologin\nholdfast:x:65532:65532:holdfast:/var/lib/holdfast:/sbin/nologin\n"

// makeImage writes an image for the targets on Linux as an OCI layout in a tar
// archive: nothing but the binary, the root certificates of NSS, licences, a user
// and a folder for temporary files.
func (r *release) makeImage() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	images := 0
	for _, t := range r.targets {
		if t.os != "linux" {
			continue
		}
		image, err := r.imageOf(t)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: t.os, Architecture: t.arch},
		}})
		images++
	}
	if images == 0 {
		return nil
	}
	folder := filepath.Join(r.stage, "image")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.plain(),
	})); err != nil {
		return err
	}
	entries, err := filesBelow(folder)
	if err != nil {
		return err
	}
	data, err := r.tar(entries)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("holdfast_"+r.plain()+"_oci.tar"), data, 0o644)
}

// imageOf returns a target's image, of one layer.
func (r *release) imageOf(t target) (v1.Image, error) {
	files, err := r.imageFiles(t)
	if err != nil {
		return nil, err
	}
	data, err := r.tar(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{
		Created: v1.Time{Time: r.date}, CreatedBy: "make release", Comment: "holdfast " + r.version,
	}})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, r.configOf(t, image))
}

// configOf returns the configuration of a target's image.
func (r *release) configOf(t target, image v1.Image) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil { // of an image in memory, whose layer has been read
		panic(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = t.os, t.arch, v1.Time{Time: r.date}
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/holdfast"},
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/var/lib/holdfast"},
		User:       "65532:65532",
		WorkingDir: "/var/lib/holdfast",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "holdfast",
			"org.opencontainers.image.version":  r.plain(),
			"org.opencontainers.image.revision": strings.TrimSuffix(r.revision, "+changes"),
			"org.opencontainers.image.source":   "https://github.com/holdfast-go/holdfast",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return config
}

func (r *release) imageFiles(t target) ([]entry, error) {
	binary, err := os.ReadFile(r.binaryOf(t))
	if err != nil {
		return nil, err
	}
	files := []entry{
		{"etc/", 0o755, nil},
		{"etc/passwd", 0o644, []byte(passwd)},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()},
		{"var/", 0o755, nil},
		{"var/lib/", 0o755, nil},
		{"var/lib/holdfast/", 0o777 | 0o1000, nil}, // writable for whatever user a cluster chooses
		{"tmp/", 0o777 | 0o1000, nil},
		{"usr/", 0o755, nil},
		{"usr/bin/", 0o755, nil},
		{"usr/bin/holdfast", 0o755, binary},
		{"usr/share/", 0o755, nil},
		{"usr/share/doc/", 0o755, nil},
		{"usr/share/doc/holdfast/", 0o755, nil},
	}
	for _, name := range []string{"LICENSE", "THIRD_PARTY_LICENSES"} {
		text, err := os.ReadFile(r.textsIn(name))
		if err != nil {
			return nil, err
		}
		files = append(files, entry{"usr/share/doc/holdfast/" + name, 0o644, text})
	}
	return files, nil
}

// certificates returns the root certificates of NSS that have no constraint, which
// a file cannot express.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

// filesBelow returns folders and files below a folder, ordered by name.
func filesBelow(folder string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			entries = append(entries, entry{name + "/", 0o755, nil})
			return nil
		}
		data, err := os.ReadFile(path)
		entries = append(entries, entry{name, 0o644, data})
		return err
	})
	return entries, err
}
