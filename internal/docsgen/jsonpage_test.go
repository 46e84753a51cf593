package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fieldTable is a table of fields in json.md: the type that has them, or the file of
// internal/cli whose structs without a name have them.
var fieldTable = regexp.MustCompile(`(?m)^<!-- fields: (\S+)(?: (\w+))? -->\n\n((?:\|.*\n)+)`)

// quoted are the words in backquotes.
var quoted = regexp.MustCompile("`([a-z0-9_]+)`")

// TestJSONPageHasEachField compares the tables of json.md with the tags of the structs
// that the command writes. A field that was renamed or has gone fails, because fields are
// only added to, and so does one that the page does not have.
func TestJSONPageHasEachField(t *testing.T) {
	page := jsonPage(t)
	command := taggedStructs(t, "../cli")
	described := map[string]bool{}
	for _, m := range fieldTable.FindAllStringSubmatch(page, -1) {
		structs, key := command, m[1]
		if m[2] != "" {
			structs, key = taggedStructs(t, "../../"+m[1]), m[2]
		} else {
			described[key] = true
		}
		var listed []string
		for line := range strings.Lines(m[3]) {
			first, _, _ := strings.Cut(strings.Trim(line, "| "), "|")
			if !strings.HasPrefix(first, "field") {
				for _, word := range quoted.FindAllStringSubmatch(first, -1) {
					listed = append(listed, word[1])
				}
			}
		}
		if got := slices.Sorted(maps.Keys(structs[key])); !slices.Equal(slices.Sorted(slices.Values(listed)), got) {
			t.Errorf("%s: the page has the fields %q, the code %q", key, listed, got)
		}
	}
	if got := slices.Sorted(maps.Keys(command)); !slices.Equal(slices.Sorted(maps.Keys(described)), got) {
		t.Errorf("the page has tables of %q, the command writes %q", slices.Sorted(maps.Keys(described)), got)
	}
}

// TestJSONPageHasEachEvent compares the events of json.md with those of run.
func TestJSONPageHasEachEvent(t *testing.T) {
	events := map[string]bool{}
	for folder, pattern := range map[string]string{
		"../cli":     `(?:eventJSON\{Event: |struct \{\n\t\t\tEvent [^}]*\}\{)"([a-z]+)"`,
		"../cli/job": `Kind = "([a-z]+)"`,
	} {
		for _, source := range sources(t, folder) {
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(source, -1) {
				events[m[1]] = true
			}
		}
	}
	_, table, _ := strings.Cut(jsonPage(t), "| event | when |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		if m := quoted.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "| `"+m[1]+"`") {
			listed[m[1]] = true
		}
	}
	if !maps.Equal(listed, events) || len(events) < 10 {
		t.Errorf("the page has the events %q, the command writes %q", slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(events)))
	}
}

func jsonPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// sources returns the sources of a folder, without tests, by their names.
func sources(t *testing.T, folder string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(folder + "/*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d sources, %v", folder, len(names), err)
	}
	all := map[string]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = string(text)
	}
	return all
}

// taggedStructs returns the names of the fields with a tag for JSON, by the name of their
// struct, or of the file for structs without one.
func taggedStructs(t *testing.T, folder string) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for file, text := range sources(t, folder) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		named := map[*ast.StructType]string{}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok {
					named[s] = n.Name.Name
				}
			case *ast.StructType:
				key := named[n]
				if key == "" {
					key = file
				}
				for _, field := range n.Fields.List {
					if field.Tag == nil {
						continue
					}
					tag, err := strconv.Unquote(field.Tag.Value)
					if err != nil {
						t.Fatal(err)
					}
					if name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); name != "" {
						if all[key] == nil {
							all[key] = map[string]bool{}
						}
						all[key][name] = true
					}
				}
			}
			return true
		})
	}
	return all
}
