// Package versions keeps the record of the servers on which all tests of a package
// passed, and when. internal/testlog writes it when it has seen them pass, and
// internal/docsgen makes tables of it, so that no page claims a server that was not
// run.
package versions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// File is the record, relative to the module's root.
const File = "docs/stores/versions.json"

// A Pass is a run of all tests of a package on one server, in which none failed.
type Pass struct {
	Server  string   `json:"server"`            // as scripts/versions names it: "mysql-9"
	Package string   `json:"package"`           // relative to the module's root: "mysqllock"
	Version string   `json:"version"`           // of the server: "9.7.4"
	Date    string   `json:"date"`              // of the run's end in UTC: "2026-11-22"
	Tests   int      `json:"tests"`             // that passed, with their parts
	Skipped []string `json:"skipped,omitempty"` // tests that this server has not run: "TestTLS"
}

// titles has the servers' names for readers, by the beginning of a server's name.
var titles = map[string]string{
	"redis": "Redis", "valkey": "Valkey", "mysql": "MySQL", "mariadb": "MariaDB", "postgresql": "PostgreSQL",
	"etcd": "etcd", "zookeeper": "ZooKeeper", "sqlite": "SQLite",
}

// Title is the server as a reader calls it.
func (p Pass) Title() string {
	kind, _, _ := strings.Cut(p.Server, "-")
	return titles[kind]
}

// key tells passes apart: there is one for each server and package.
func (p Pass) key() [2]string { return [2]string{p.Server, p.Package} }

// check says what a pass lacks.
func (p Pass) check() error {
	if p.Title() == "" {
		return fmt.Errorf("server %q is unknown: its name begins with a store's and a hyphen, as scripts/versions -l has it", p.Server)
	}
	if p.Version == "" || p.Package == "" || p.Tests <= 0 {
		return fmt.Errorf("%s lacks a version, a package, or tests that passed", p.Server)
	}
	if _, err := time.Parse(time.DateOnly, p.Date); err != nil {
		return fmt.Errorf("%s: date %q is no date: %w", p.Server, p.Date, err)
	}
	return nil
}

// Parse reads a record.
func Parse(data []byte) ([]Pass, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var all []Pass
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s is malformed: %w", File, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s is malformed: more follows its end", File)
	}
	seen := map[[2]string]bool{}
	for _, p := range all {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%s is malformed: %w", File, err)
		}
		if seen[p.key()] {
			return nil, fmt.Errorf("%s is malformed: %s has %s twice", File, p.Server, p.Package)
		}
		seen[p.key()] = true
	}
	return all, nil
}

// Add puts a pass into the record in a file, in the place of an earlier one of the
// same server and package. The file is made if it is missing.
func Add(file string, p Pass) error {
	if err := p.check(); err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	var all []Pass
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if all, err = Parse(data); err != nil {
			return err
		}
	}
	all = slices.DeleteFunc(all, func(o Pass) bool { return o.key() == p.key() })
	all = append(all, p)
	slices.SortFunc(all, func(a, b Pass) int { return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Package, b.Package)) })
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "\t")
	if err := enc.Encode(all); err != nil {
		return err
	}
	// A reader never finds half of it.
	if err := os.WriteFile(file+".new", b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
