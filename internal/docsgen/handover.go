package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/internal/docsgen/handover"
)

// recorded is the record of a killed holder and its successor, and handoverPicture its
// drawing.
const (
	recorded        = "docs/handover.json"
	handoverPicture = "docs/handover.svg"
)

// drawRecorded draws the record.
func drawRecorded(fsys fs.FS) ([]byte, error) {
	data, err := fs.ReadFile(fsys, recorded)
	if err != nil {
		return nil, err
	}
	r, err := handover.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", recorded, err)
	}
	return r.Picture()
}

// record builds the command, plays the scene on a store, and writes the record.
func record(root, url, store string) error {
	if store == "" {
		return errors.New("-store is missing")
	}
	folder, err := os.MkdirTemp("", "holdfast-docsgen-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "holdfast"), "./cmd/holdfast")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, err := handover.Scene{
		Folder: folder, URL: url, Store: store, TTL: 10 * time.Second, Pause: 2 * time.Second,
		Work: [2]time.Duration{8 * time.Second, 8 * time.Second},
	}.Play(ctx)
	if err != nil {
		return err
	}
	data, err := r.JSON()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(recorded)), data, 0o644)
}
