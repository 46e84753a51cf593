package lockserver

import (
	_ "embed"
	"net/http"
	"strconv"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the document that describes the server's requests, answers and
// codes, in the form of OpenAPI 3.0.3; GET /openapi.json answers with it.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }

// serveOpenAPI answers GET /openapi.json.
func (s *Server) serveOpenAPI(c *call) {
	c.status = http.StatusOK
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	_, _ = c.w.Write(openAPI) // a client that is gone
}
