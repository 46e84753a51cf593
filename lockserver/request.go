package lockserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// paramType is the type of a request's field.
type paramType uint8

const (
	isText paramType = iota
	isNumber
	isFlag
)

// param is a field of a request, with its value of one type.
type param struct {
	name   string
	text   string
	number int64
	flag   bool
}

// params are the fields of a request, which are few.
type params []param

// get returns a field; the zero param if the request does not have it.
func (p params) get(name string) (f param) {
	if i := slices.IndexFunc(p, func(f param) bool { return f.name == name }); i >= 0 {
		return p[i]
	}
	return param{}
}

func (p params) text(name string) string { return p.get(name).text }

func (p params) number(name string) int64 { return p.get(name).number }

func (p params) flag(name string) bool { return p.get(name).flag }

func (p params) has(name string) bool { return p.get(name).name != "" }

// readBody returns the body of a request and whether it is JSON; a form otherwise.
func readBody(w http.ResponseWriter, r *http.Request, most int64) (body []byte, isJSON bool, p *problem) {
	var err error
	const form = "application/x-www-form-urlencoded"
	kind := r.Header.Get("Content-Type")
	if kind != form {
		kind, _, err = mime.ParseMediaType(kind)
	}
	isJSON = kind == "application/json"
	if err != nil || !isJSON && kind != form {
		return nil, false, newProblem(http.StatusUnsupportedMediaType, "media_type", "the body is neither application/json nor application/x-www-form-urlencoded")
	}
	limits := http.NewResponseController(w)
	_ = limits.SetReadDeadline(time.Now().Add(ioTimeout)) // not every server can
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, false, newProblem(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", most)
	}
	if err != nil { // the deadline stays: before it answers, net/http reads what is left
		return nil, false, badRequest("the body ended early")
	}
	_ = limits.SetReadDeadline(time.Time{})
	if !utf8.Valid(body) || isJSON && hasLoneSurrogate(body) {
		return nil, false, badRequest("the body is not valid UTF-8")
	}
	return body, isJSON, nil
}

// hasLoneSurrogate reports whether a string of a JSON text has half of a pair \ud800\udc00,
// which encoding/json replaces: different names would be one.
func hasLoneSurrogate(text []byte) bool {
	for i := bytes.IndexByte(text, '\\'); i >= 0 && i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if i++; i == len(text) || text[i] != 'u' {
			continue
		}
		high := escaped(text[i:])
		if !utf16.IsSurrogate(high) {
			continue
		}
		rest, ok := bytes.CutPrefix(text[min(i+5, len(text)):], []byte{'\\'})
		if !ok || utf16.DecodeRune(high, escaped(rest)) == utf8.RuneError {
			return true
		}
		i += 10
	}
	return false
}

// escaped returns the rune of an escape u0000, 0 for other text.
func escaped(text []byte) rune {
	if len(text) < 5 || text[0] != 'u' {
		return 0
	}
	r, _ := strconv.ParseUint(string(text[1:5]), 16, 32) // 0 with an error
	return rune(r)
}

// readParams returns the fields of a request with a small body.
func readParams(w http.ResponseWriter, r *http.Request, allowed map[string]paramType) (params, *problem) {
	body, isJSON, p := readBody(w, r, maxBodySize)
	switch {
	case p != nil:
		return nil, p
	case isJSON:
		return parseJSON(body, allowed)
	}
	return parseForm(string(body), allowed)
}

// parseForm reads a form, or the query of a URL.
func parseForm(form string, allowed map[string]paramType) (params, *problem) {
	out := make(params, 0, 8)
	for pair := range strings.SplitSeq(form, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		text, err2 := url.QueryUnescape(value)
		kind, known := allowed[name]
		switch {
		case err != nil || err2 != nil || strings.Contains(pair, ";"):
			return nil, badRequest("the form cannot be read")
		case !known:
			return nil, unknownField(name)
		case out.has(name):
			return nil, badRequest("field %q is given twice", clip(name))
		case !utf8.ValidString(text):
			return nil, badRequest("field %q is not valid UTF-8", name)
		}
		f := param{name: name}
		switch kind {
		case isText:
			f.text = text
		case isNumber:
			if f.number, err = strconv.ParseInt(text, 10, 64); err != nil {
				return nil, badRequest("field %q is no whole number", name)
			}
		case isFlag:
			if f.flag, err = strconv.ParseBool(text); err != nil {
				return nil, badRequest("field %q is neither true nor false", name)
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// parseJSON reads an object. Names are compared exactly, and each may come once.
func parseJSON(body []byte, allowed map[string]paramType) (params, *problem) {
	object, p := parseObject(body)
	if p != nil {
		return nil, p
	}
	out := make(params, 0, len(object))
	for name, raw := range object {
		kind, ok := allowed[name]
		if !ok {
			return nil, unknownField(name)
		}
		f := param{name: name}
		var value any = &f.text
		switch kind {
		case isNumber:
			value = &f.number
		case isFlag:
			value = &f.flag
		}
		if string(raw) == "null" || json.Unmarshal(raw, value) != nil {
			return nil, badRequest("field %q has a value of another type", name)
		}
		out = append(out, f)
	}
	return out, nil
}

// parseObject reads the members of one JSON object, and nothing after it.
func parseObject(body []byte) (map[string]json.RawMessage, *problem) {
	dec := json.NewDecoder(bytes.NewReader(body))
	out := make(map[string]json.RawMessage)
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, badRequest("the body is no JSON object")
	}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, badRequest("the body is no JSON object")
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, badRequest("the body is no JSON object")
		}
		if _, twice := out[name]; twice {
			return nil, badRequest("field %q is given twice", clip(name))
		}
		out[name] = raw
	}
	if t, err := dec.Token(); err != nil || t != json.Delim('}') {
		return nil, badRequest("the body is no JSON object")
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, badRequest("the body goes on after the JSON object")
	}
	return out, nil
}

// parseList reads the member "holds" of a batch.
func parseList(body []byte) ([]json.RawMessage, *problem) {
	object, p := parseObject(body)
	if p != nil {
		return nil, p
	}
	for name := range object {
		if name != "holds" {
			return nil, unknownField(name)
		}
	}
	var list []json.RawMessage
	if err := json.Unmarshal(object["holds"], &list); err != nil {
		return nil, badRequest("field \"holds\" is no list")
	}
	return list, checkBatch(len(list))
}

func checkBatch(n int) *problem {
	if n < 1 || n > maxBatch {
		return badRequest("%d holds in a request; 1 to %d are possible", n, maxBatch)
	}
	return nil
}

func unknownField(name string) *problem {
	return newProblem(http.StatusBadRequest, "unknown_field", "the request has no field %q", clip(name))
}

// idPattern: the part before the dot names the client.
var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}(\.[0-9]{1,19})?$`) })

func checkID(id string) *problem {
	if !idPattern().MatchString(id) {
		return badRequest("id: 16 to 64 of A-Z, a-z, 0-9, _ and -, then perhaps a dot and a number")
	}
	return nil
}

// clientOf returns the part of an id that names the client.
func clientOf(id string) string {
	client, _, _ := strings.Cut(id, ".")
	return client
}

// hostOf returns a Host header without its port.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(host, "]"), "["), ".")
}

// isAddress reports whether a host is an IP address, which no foreign name server can
// point elsewhere.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// wantsText reports whether the client asks for lines of text before JSON.
func wantsText(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(accept string) bool {
		first, _, _ := strings.Cut(accept, ",")
		kind, _, err := mime.ParseMediaType(first)
		return err == nil && kind == "text/plain"
	})
}
