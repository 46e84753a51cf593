package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-go/holdfast/bench/scale"
)

// renderScale writes the tables of scale.md from the reports of a folder.
func renderScale(from, docs string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.json"))
	if err != nil {
		return err
	}
	var stores []*scale.Report
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		r := new(scale.Report)
		if err := json.Unmarshal(b, r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		stores = append(stores, r)
	}
	if len(stores) == 0 {
		return fmt.Errorf("there are no reports in %s", from)
	}
	page := filepath.Join(docs, "scale.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	filled, err := scale.Fill(text, stores)
	return errors.Join(err, os.WriteFile(page, filled, 0o666))
}
