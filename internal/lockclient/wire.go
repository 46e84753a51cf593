package lockclient

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// answer has the members of all answers; lockserver/openapi.json says which one has which.
type answer struct {
	entry
	Server   string  `json:"server"`
	Group    string  `json:"group"`
	Draining bool    `json:"draining"`
	Holds    []entry `json:"holds"`

	// of GET /v1/lock
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Holders []ticket `json:"holders"`
	Waiters []ticket `json:"waiters"`

	// of GET /v1/locks
	Locks []struct {
		Name string `json:"name"`
	} `json:"locks"`
	Next string `json:"next"`

	// of GET /v1/server
	Version   string  `json:"version"`
	Principal string  `json:"principal"`
	Traits    traits  `json:"traits"`
	Limits    limits  `json:"limits"`
	Rights    []right `json:"rights"`

	status int           // of HTTP
	after  time.Duration // Retry-After
	missed bool          // another server was asked first, and has not answered
}

// entry is the part of an answer about one id, of a batch or the only one.
type entry struct {
	Status     any         `json:"status"` // a number in a problem
	ID         string      `json:"id"`
	State      string      `json:"state"`
	Token      uint64      `json:"token"`
	Left       int64       `json:"left_ms"`
	Ahead      *int        `json:"ahead"`
	Holder     *holderInfo `json:"holder"`
	HolderLeft int64       `json:"holder_left_ms"`
	Resumable  *bool       `json:"resumable"`
	Result     string      `json:"result"`
	Code       string      `json:"code"`
	Detail     string      `json:"detail"`
	Event      string      `json:"event"` // of a stream
}

type ticket struct {
	ID     string      `json:"ticket"`
	Owner  string      `json:"owner"`
	Units  int64       `json:"units"`
	Token  uint64      `json:"token"`
	Left   int64       `json:"left_ms"`
	Holder *holderInfo `json:"holder"`
}

type traits struct {
	Fencing  bool `json:"fencing"`
	Shared   bool `json:"shared"`
	Owner    bool `json:"owner"`
	Fair     bool `json:"fair"`
	Push     bool `json:"push"`
	Restart  bool `json:"survives_restart"`
	Failover bool `json:"survives_failover"`
}

type limits struct {
	MinTTL int64 `json:"min_ttl_ms"`
	MaxTTL int64 `json:"max_ttl_ms"`
}

type right struct {
	Prefix  string   `json:"prefix"`
	May     []string `json:"may"`
	MaxHold int64    `json:"max_hold_ms"`
}

// holderInfo describes a holder, in the words of its server.
type holderInfo struct {
	Owner     string `json:"owner"`
	Host      string `json:"host"`
	PID       int    `json:"pid"`
	Note      string `json:"note"`
	Since     int64  `json:"since_ms"`
	Principal string `json:"principal"`
	Remote    string `json:"remote"`
	Via       string `json:"via"`
}

// meta is the metadata of a ticket as the core writes and reads it.
type meta struct {
	Owner string `json:"o,omitempty"`
	Host  string `json:"h,omitempty"`
	PID   int    `json:"p,omitempty"`
	Via   string `json:"v,omitempty"`
	Since int64  `json:"t,omitempty"`
	Note  string `json:"n,omitempty"`
}

// text returns the metadata that the core reads; empty if nothing is known.
func (h *holderInfo) text() string {
	if h == nil || *h == (holderInfo{}) {
		return ""
	}
	via := h.Via
	if h.Principal != "" { // the server's word, as the store has it
		via = strings.Join([]string{h.Via, h.Remote, h.Principal}, " ")
	}
	b, err := json.Marshal(meta{Owner: h.Owner, Host: h.Host, PID: h.PID, Via: via, Since: h.Since, Note: h.Note})
	if err != nil {
		return "" // cannot happen: the struct has nothing that fails
	}
	return string(b)
}

// acquireBody returns the fields of a request to hold, without those that say how long it
// waits.
func acquireBody(id string, t *driver.Ticket) map[string]any {
	body := map[string]any{"id": id, "name": t.Name, "ttl_ms": t.TTL.Milliseconds()}
	switch {
	case t.Limit == 1:
	case t.Limit == driver.RWLimit && t.Exclusive():
		body["kind"] = "write"
	case t.Limit == driver.RWLimit && t.Units == 1:
		body["kind"] = "read"
	default:
		body["kind"], body["permits"], body["of"] = "permits", t.Units, t.Limit
	}
	var m meta
	if json.Unmarshal([]byte(t.Meta), &m) != nil {
		return body
	}
	for name, text := range map[string]string{"host": m.Host, "note": m.Note} {
		if text != "" {
			body[name] = text
		}
	}
	if m.PID > 0 {
		body["pid"] = m.PID
	}
	return body
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// storeToken turns a server's token into the store's: users see tokens times 256, and in
// the low part the number of the server's hand-offs.
func storeToken(token uint64) uint64 { return token >> 8 }

// statusOf returns the status of an entry that is a problem.
func (e entry) statusOf() int {
	n, _ := e.Status.(float64)
	return int(n)
}

// isUnserved says that the server could not serve the entry: its store did not answer it.
func (e entry) isUnserved() bool {
	return e.statusOf() >= http.StatusInternalServerError || e.Result == "unknown"
}
