// Package page has the page of a lock server: who holds and who waits, live, and breaks
// for those who may. It is three files without a build step. The page asks the server
// that it came from and nothing else.
package page

import (
	"embed"
	"net/http"
	"path"
	"strconv"
)

//go:embed page.html page.css page.js
var files embed.FS

// policy forbids everything but the page's own files and requests to its server: no
// inline script or style, no frame around it, no form, and no text that becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types has the content type of each path.
var types = map[string]string{
	"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8",
}

// Serve answers a request for "/", "/page.css" or "/page.js". It returns the status.
func Serve(w http.ResponseWriter, r *http.Request) int {
	name := path.Base(r.URL.Path)
	if r.URL.Path == "/" {
		name = "page.html"
	}
	data, err := files.ReadFile(name)
	kind := types[r.URL.Path]
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return http.StatusNotFound
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	_, _ = w.Write(data) // a client that is gone
	return http.StatusOK
}
