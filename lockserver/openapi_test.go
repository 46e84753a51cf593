package lockserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// document is the part of the OpenAPI document that tests use.
type document struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name   string
			Schema schema
		}
		RequestBody struct {
			Content map[string]struct{ Schema schema }
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 string
	Properties           map[string]schema
	Required             []string
	AdditionalProperties *bool
	Items                *schema
	Enum                 []string
	Pattern              string
}

var theDocument = func() (d document) {
	if err := json.Unmarshal(openAPI, &d); err != nil {
		panic(err)
	}
	return d
}()

func (s schema) resolved() schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return theDocument.Components.Schemas[name]
	}
	return s
}

// breaches returns where a value is not as a schema says.
func (s schema) breaches(at string, value any) (bad []string) {
	s = s.resolved()
	switch v := value.(type) {
	case map[string]any:
		if s.Type != "object" {
			return []string{at + " is an object"}
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				bad = append(bad, at+"."+name+" is missing")
			}
		}
		for name, member := range v {
			p, ok := s.Properties[name]
			switch {
			case ok:
				bad = append(bad, p.breaches(at+"."+name, member)...)
			case s.AdditionalProperties != nil && !*s.AdditionalProperties:
				bad = append(bad, at+"."+name+" is not in the document")
			}
		}
	case []any:
		if s.Type != "array" {
			return []string{at + " is a list"}
		}
		for i, e := range v {
			bad = append(bad, s.Items.breaches(fmt.Sprintf("%s[%d]", at, i), e)...)
		}
	case string:
		if s.Type != "string" || len(s.Enum) > 0 && !slices.Contains(s.Enum, v) ||
			s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			bad = append(bad, fmt.Sprintf("%s is %q", at, v))
		}
	case json.Number:
		if s.Type != "integer" || strings.ContainsAny(v.String(), ".e") {
			bad = append(bad, fmt.Sprintf("%s is %v", at, v))
		}
	case bool:
		if s.Type != "boolean" {
			bad = append(bad, fmt.Sprintf("%s is %v", at, v))
		}
	default:
		bad = append(bad, fmt.Sprintf("%s is %v", at, v))
	}
	return bad
}

// answerBreaches returns where an answer is not as the document says. Every answer of
// every test is checked.
func answerBreaches(method, path string, status int, kind string, body map[string]any) []string {
	s := schema{Ref: "#/components/schemas/Problem"}
	if op, ok := theDocument.Paths[path][strings.ToLower(method)]; ok && status < 300 {
		content, ok := op.Responses[fmt.Sprint(status)].Content[kind]
		if !ok {
			return []string{fmt.Sprintf("%s %s: the document has no answer %d of type %s", method, path, status, kind)}
		}
		s = content.Schema
	}
	if s.resolved().Properties == nil {
		return nil // the document itself
	}
	return s.breaches(method+" "+path, body)
}

// TestDocumentAndRoutesAgree checks that the document has the requests that the server
// answers, with their fields, and no others.
func TestDocumentAndRoutesAgree(t *testing.T) {
	var documented []string
	for path, ops := range theDocument.Paths {
		for method := range ops {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(documented)
	if served := slices.Sorted(maps.Keys(routes())); !slices.Equal(served, documented) {
		t.Errorf("served %v\ndocumented %v", served, documented)
	}
	types := map[string]paramType{"string": isText, "integer": isNumber, "boolean": isFlag}
	for name, want := range map[string]map[string]paramType{
		"Acquire": acquireParams, "Hold": holdParams, "ReleaseOne": releaseParams, "Break": breakParams,
	} {
		got := make(map[string]paramType)
		for field, s := range theDocument.Components.Schemas[name].Properties {
			got[field] = types[s.Type]
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: documented %v, read %v", name, got, want)
		}
	}
	for path, want := range map[string]map[string]paramType{
		"/v1/events": eventsParams, "/v1/lock": lockParams, "/v1/locks": locksParams, "/v1/watch": watchParams,
	} {
		got := make(map[string]paramType)
		for _, p := range theDocument.Paths[path]["get"].Parameters {
			got[p.Name] = types[p.Schema.Type]
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: documented %v, read %v", path, got, want)
		}
	}
}

// TestDocumentAndCodesAgree checks that the document has the codes that the source has,
// and no others but overloaded, which a program before the handler may answer.
func TestDocumentAndCodesAgree(t *testing.T) {
	code := regexp.MustCompile(`newProblem\([^,]+, "([a-z_]+)"`)
	codes := map[string]bool{"overloaded": true, "bad_request": true}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range code.FindAllStringSubmatch(string(source), -1) {
			codes[m[1]] = true
		}
	}
	got := slices.Sorted(slices.Values(theDocument.Components.Schemas["Problem"].Properties["code"].Enum))
	if want := slices.Sorted(maps.Keys(codes)); !slices.Equal(got, want) {
		t.Errorf("documented %v\nin the source %v", got, want)
	}
}

// TestDocumentIsServed checks that the document is at its place.
func TestDocumentIsServed(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.get(w.server(), "/openapi.json")
		if r.status != http.StatusOK || r.raw != string(OpenAPI()) {
			t.Errorf("%d, %d bytes", r.status, len(r.raw))
		}
	})
}
