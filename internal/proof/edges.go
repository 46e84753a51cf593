package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// edgesFile has the walks that drivertest plays.
const edgesFile = "drivertest/testdata/edges.json"

// Edges is the content of edgesFile.
type Edges struct {
	Hash   string   `json:"hash"` // of the module and its configurations, see edgesHash
	Graphs []*Walks `json:"graphs"`
}

// edgesHash returns the hash of all that the walks are made from, below dir.
func edgesHash(dir string) (string, error) {
	configs, err := filepath.Glob(filepath.Join(dir, "proof/cfg/Seam.*.cfg"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, file := range append(configs, filepath.Join(dir, "proof/Seam.tla"), filepath.Join(dir, "proof/Places.tla"), filepath.Join(dir, "proof/Queue.tla")) {
		text, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// makeEdges makes the walks anew, and compares them with those of edgesFile, or
// writes them.
func (k *Checker) makeEdges(ctx context.Context, write bool) error {
	all := &Edges{}
	var err error
	if all.Hash, err = edgesHash("."); err != nil {
		return err
	}
	configs, err := readConfigs("proof/cfg")
	if err != nil {
		return err
	}
	for _, c := range configs {
		if c.Module() != "Seam" {
			continue
		}
		w, err := k.walksOf(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		all.Graphs = append(all.Graphs, w)
		fmt.Printf("%-20s %d states, %d edges, %d walks\n", c.Name, w.States, w.Edges, len(w.Timeless)+len(w.Expiring))
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", " ")
	if err := e.Encode(all); err != nil {
		return err
	}
	if write {
		return os.WriteFile(edgesFile, text.Bytes(), 0o644)
	}
	is, err := os.ReadFile(edgesFile)
	if err != nil {
		return err
	}
	if !bytes.Equal(is, text.Bytes()) {
		return fmt.Errorf("%s is not what module Seam gives: make proof-edges, and commit it", edgesFile)
	}
	return nil
}

func (k *Checker) walksOf(ctx context.Context, c *Config) (*Walks, error) {
	dir, err := os.MkdirTemp("", "holdfast-edges-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	with := *k
	with.Dump = filepath.Join(dir, "graph")
	o, _, err := with.check(ctx, c.Name, c, false)
	if err != nil {
		return nil, err
	}
	if o.Verdict != Holds {
		return nil, fmt.Errorf("%v: %s %s", o.Verdict, o.Property, o.Reason)
	}
	text, err := os.ReadFile(with.Dump + ".dot")
	if err != nil {
		return nil, err
	}
	g, err := parseDot(string(text), o.Distinct)
	if err != nil {
		return nil, err
	}
	limit := int64(0)
	for _, constant := range c.Constants {
		if constant.Name == "Limit" {
			if limit, err = strconv.ParseInt(constant.Value, 10, 64); err != nil {
				return nil, err
			}
		}
	}
	_, name, _ := strings.Cut(c.Name, ".")
	w := g.Walks(name, limit)
	if n := w.covered(); n != w.Edges {
		return nil, fmt.Errorf("the walks go over %d of %d edges", n, w.Edges)
	}
	return w, nil
}
