package page_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/lockserver/internal/page"
)

func TestMain(m *testing.M) {
	if flag.Parse(); *lane {
		os.Exit(m.Run()) // net/http keeps connections
	}
	goleak.VerifyTestMain(m)
}

func get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	if status := page.Serve(w, httptest.NewRequest(http.MethodGet, path, nil)); status != w.Code {
		t.Errorf("%s: status %d, and %d was sent", path, status, w.Code)
	}
	return w.Result(), w.Body.String()
}

// TestServeHeaders checks that each file has its type, its length and the headers that
// keep other pages out.
func TestServeHeaders(t *testing.T) {
	for path, kind := range map[string]string{"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript"} {
		r, body := get(t, path)
		want := map[string]string{
			"Content-Type": kind + "; charset=utf-8", "Content-Length": strconv.Itoa(len(body)),
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
				"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		}
		for name, value := range want {
			if got := r.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", path, name, got, value)
			}
		}
		if r.StatusCode != http.StatusOK || len(body) > 32<<10 {
			t.Errorf("%s: %d, %d bytes", path, r.StatusCode, len(body))
		}
	}
	for _, path := range []string{"/page.go", "/page.html", "/x/page.js", "/page", "/../page.js"} {
		if r, _ := get(t, path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

// element is one of the page, with its attributes.
type element struct {
	name  string
	attrs map[string]string
}

func elements(t *testing.T) (all []element) {
	t.Helper()
	_, html := get(t, "/")
	dec := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(html, "<!DOCTYPE html>")))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			e := element{start.Name.Local, make(map[string]string)}
			for _, a := range start.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			all = append(all, e)
		}
	}
}

// TestPageStructure checks that the page has nothing inline and nothing from elsewhere,
// that each input has a label and each reference an element, and that the script finds
// what it asks for.
func TestPageStructure(t *testing.T) {
	ids, labels, count := map[string]bool{}, map[string]bool{}, map[string]int{}
	all := elements(t)
	for _, e := range all {
		count[e.name]++
		if id := e.attrs["id"]; id != "" && ids[id] {
			t.Errorf("two elements have the id %s", id)
		}
		ids[e.attrs["id"]] = true
		if e.name == "label" {
			labels[e.attrs["for"]] = true
		}
	}
	for _, e := range all {
		for name, value := range e.attrs {
			if strings.HasPrefix(name, "on") || name == "style" || (name == "src" || name == "href") && strings.Contains(value, ":") {
				t.Errorf("<%s %s=%q>", e.name, name, value)
			}
		}
		for _, reference := range []string{"for", "aria-labelledby", "aria-describedby"} {
			if to := e.attrs[reference]; to != "" && !ids[to] {
				t.Errorf("<%s %s=%q> refers to nothing", e.name, reference, to)
			}
		}
		if e.name == "style" || e.name == "script" && e.attrs["src"] != "page.js" || e.name == "html" && e.attrs["lang"] != "en" {
			t.Errorf("<%s %v>", e.name, e.attrs)
		}
		if e.name == "input" && !labels[e.attrs["id"]] {
			t.Errorf("the input %s has no label", e.attrs["id"])
		}
	}
	for _, once := range []string{"h1", "main", "title", "table", "caption", "dialog", "script"} {
		if count[once] != 1 {
			t.Errorf("%d elements %s, want 1", count[once], once)
		}
	}
	_, script := get(t, "/page.js")
	for _, m := range regexp.MustCompile(`\$\("([^"]*)"\)`).FindAllStringSubmatch(script, -1) {
		if !ids[m[1]] {
			t.Errorf("the script asks for an element %q", m[1])
		}
	}
	_, style := get(t, "/page.css")
	if bad := regexp.MustCompile(`https?:|//[a-z]|url\(|@import`).FindString(script + style); bad != "" {
		t.Errorf("something comes from elsewhere: %s", bad)
	}
	asked := regexp.MustCompile(`"(v1/[a-z]+)`).FindAllStringSubmatch(script, -1)
	for _, m := range asked {
		if !slices.Contains([]string{"v1/server", "v1/watch", "v1/lock", "v1/locks", "v1/break"}, m[1]) {
			t.Errorf("the script asks for %s", m[1])
		}
	}
	if len(asked) < 5 {
		t.Errorf("the script asks for %v", asked)
	}
}
