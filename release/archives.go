package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is a file of an archive.
type entry struct {
	name string
	mode fs.FileMode
	data []byte
}

// baseName returns what the names of a target's files begin with.
func (r *release) baseName(t target) string {
	return fmt.Sprintf("holdfast_%s_%s_%s", r.plain(), t.os, t.arch)
}

// makeArchives packs each binary with the texts: tar.gz, and zip for Windows.
func (r *release) makeArchives() error {
	texts, err := r.texts()
	if err != nil {
		return err
	}
	for _, t := range r.targets {
		binary, err := os.ReadFile(r.binaryOf(t))
		if err != nil {
			return err
		}
		entries := append([]entry{{t.binary(), 0o755, binary}}, texts...)
		for i := range entries {
			entries[i].name = r.baseName(t) + "/" + entries[i].name
		}
		pack, end := r.tarGzip, ".tar.gz"
		if t.os == "windows" {
			pack, end = r.zip, ".zip"
		}
		data, err := pack(entries)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.path(r.baseName(t)+end), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// texts returns the texts of the stage, ordered by name.
func (r *release) texts() ([]entry, error) {
	var entries []entry
	top := r.textsIn("")
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := strings.CutPrefix(filepath.ToSlash(path), filepath.ToSlash(top)+"/")
		entries = append(entries, entry{name, 0o644, data})
		return err
	})
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries, err
}

// tar returns an archive of root's files, at the time of the release. Names that
// end with a slash are folders.
func (r *release) tar(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode), Size: int64(len(e.data)), ModTime: r.date, Format: tar.FormatUSTAR}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (r *release) tarGzip(entries []entry) ([]byte, error) {
	data, err := r.tar(entries)
	if err != nil {
		return nil, err
	}
	return compressed(data)
}

func (r *release) zip(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: r.date}
		h.SetMode(e.mode)
		file, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := file.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// makeChecksums writes the SHA-256 of every file, as sha256sum does.
func (r *release) makeChecksums() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, f := range files {
		data, err := os.ReadFile(r.path(f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return os.WriteFile(r.path("SHA256SUMS"), b.Bytes(), 0o644)
}
