//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/lockserver/lockauth"
)

// The attacks on a lock server that its command has to withstand; the numbers are
// those of docs/serve.md.

func TestAttack10StoreInMemoryNeedsDev(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"memory:", "MEMORY:x"} {
		holdfastHere("serve", "--store", url).want(t, exitUsage, "", "--dev")
	}
}

func TestAttack17RebindingAName(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for host, status := range map[string]int{
		"evil.example": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "localhost:7420": 200, "127.0.0.1:1": 200,
	} {
		a := d.must("/v1/server", nil, func(r *http.Request) { r.Host = host })
		if a.status != status || status == 403 && a.code() != "bad_host" {
			t.Errorf("host %s: %d %s, want %d", host, a.status, a.text, status)
		}
	}
	if a := d.must("/v1/break", url.Values{"name": {"nightly"}, "ticket": {"1"}}, nil); a.status != 403 || a.code() != "forbidden" {
		t.Errorf("everybody may break: %d %s", a.status, a.text)
	}
	named := serve(t, "--host", "lockd.example.org")
	for host, status := range map[string]int{"evil.example": 403, "lockd.example.org": 200, "localhost": 200} {
		if a := named.must("/v1/server", nil, func(r *http.Request) { r.Host = host }); a.status != status {
			t.Errorf("with --host, host %s: %d %s, want %d", host, a.status, a.text, status)
		}
	}
}

func TestAttack18FormOfAForeignPage(t *testing.T) {
	t.Parallel()
	d := serve(t)
	form := url.Values{"id": {someID}, "name": {"nightly"}, "ttl_ms": {"30000"}}
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		if a := d.must("/v1/acquire", form, func(r *http.Request) { r.Header.Set(name, value) }); a.status != 403 || a.code() != "cross_origin" {
			t.Errorf("%s: %d %s", name, a.status, a.text)
		}
	}
	if a := d.must("/v1/acquire?"+form.Encode(), nil, nil); a.status != http.StatusMethodNotAllowed {
		t.Errorf("a GET acquires: %d %s", a.status, a.text)
	}
}

func TestAttack20IDOfAnotherPrincipal(t *testing.T) {
	t.Parallel()
	token, principal := billing()
	other, hash := lockauth.NewToken()
	d := serve(t, "--auth", authFile(t, principal+`,{"name":"other","token_sha256":["`+hash+`"],"rights":[{"prefix":"invoice/","may":["lock"]}]}`))
	if a := d.acquire(someID, "invoice/1", token); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	if a := d.must("/v1/acquire", url.Values{"id": {someID}, "name": {"invoice/1"}, "ttl_ms": {"30000"}, "try": {"true"}}, bearer(other)); a.status != 409 {
		t.Errorf("another principal with the same id: %d %s", a.status, a.text)
	}
	d.must("/v1/release", url.Values{"id": {someID}, "name": {"invoice/1"}}, bearer(other))
	if a := d.must("/v1/renew", url.Values{"id": {someID}}, bearer(token)); !strings.Contains(a.text, `"state":"held"`) {
		t.Errorf("the holder: %d %s", a.status, a.text)
	}
}

func TestAttack21SlowAndLargeRequests(t *testing.T) {
	t.Parallel()
	d := serve(t, "--max-connections", "4")
	address := strings.TrimPrefix(d.url, "http://")
	dial := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	waiting := map[string]net.Conn{}
	for what, text := range map[string]string{
		"headers":                  "GET /v1/server HTTP/1.1\r\nHost: localhost\r\nX-",
		"a body":                   "POST /v1/renew HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nid=",
		"a body that nobody reads": "POST /v1/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nid=",
	} {
		waiting[what] = dial(text)
	}
	for what, c := range waiting {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the server still waits for %s", what)
		}
	}
	for what, text := range map[string]string{
		"431": "GET /v1/server HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("x", 40_000) + "\r\n\r\n",
		"413": "POST /v1/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 20000\r\n\r\nid=" + strings.Repeat("x", 19_997),
	} {
		answer, err := bufio.NewReader(dial(text)).ReadString('\n')
		if err != nil || !strings.Contains(answer, what) {
			t.Errorf("a large request was answered %q, %v; want %s", answer, err, what)
		}
	}
	// Idle strangers make room.
	for range 20 {
		dial("")
	}
	eventually(t, func() bool { // connections that were refused linger for a moment
		a, err := d.do("/v1/server", nil, nil)
		return err == nil && a.status == 200
	}, func() string { return "no room among idle connections" })
}

func TestAttack22NamesBesideAPrefix(t *testing.T) {
	t.Parallel()
	token, principal := billing()
	d := serve(t, "--auth", authFile(t, principal))
	for _, name := range []string{"invoice", "invoices/1", "Invoice/1", "invoice%2F1", "../invoice/1", "/invoice/1", "ınvoice/1", "invoice\u2215" + "1"} {
		if a := d.acquire(someID, name, token); a.status != 403 || a.code() != "forbidden" {
			t.Errorf("%q: %d %s", name, a.status, a.text)
		}
	}
	if a := d.acquire(someID, "invoice/../salary", token); a.status != 200 {
		t.Errorf("a name is no path: %d %s", a.status, a.text)
	}
}

func TestAttack23GuessedTokens(t *testing.T) {
	a := newAudit("file", "s", &failingFile{}, slog.New(slog.DiscardHandler))
	defer a.close()
	now := time.Now()
	written := 0
	for range 100_000 {
		if _, ok := a.allow(now); ok {
			written++
		}
	}
	if written != deniedBurst {
		t.Errorf("%d of 100,000 refusals at once are written, want %d", written, deniedBurst)
	}
	if n, ok := a.allow(now.Add(time.Second)); !ok || n != 100_000-deniedBurst {
		t.Errorf("the next refusal says that %d were suppressed, and is written: %t", n, ok)
	}
}

// failingFile is an audit file that can be full.
type failingFile struct {
	bytes.Buffer
	room   int // bytes that are written before it is full; negative: no bound
	closed bool
}

func (f *failingFile) Write(p []byte) (int, error) {
	if f.room >= 0 && len(p) > f.room {
		n, _ := f.Buffer.Write(p[:f.room])
		f.room = 0
		return n, unix.ENOSPC
	}
	if f.room > 0 {
		f.room -= len(p)
	}
	return f.Buffer.Write(p)
}

func (f *failingFile) Sync() error  { return unix.EINVAL }
func (f *failingFile) Close() error { f.closed = true; return nil }

func TestAttack24FullDiskRefusesBreaks(t *testing.T) {
	file := &failingFile{room: 50} // within the first object
	a := newAudit("file", "s", file, slog.New(slog.DiscardHandler))
	a.hold(lockserver.HoldInfo{Event: lockserver.HoldGranted, Name: "first"})
	if err := a.breaks(lockserver.BreakInfo{Name: "second"}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a break on a full disk: %v", err)
	}
	file.room = -1 // addNow has returned: nothing is written at this time
	if err := a.breaks(lockserver.BreakInfo{Name: "third"}); err != nil {
		t.Errorf("a break with room again: %v", err)
	}
	a.close()
	first, rest, _ := strings.Cut(file.String(), "\n")
	all := objects(t, rest)
	if first == "" || len(all) != 2 || all[0]["event"] != "dropped" || all[0]["dropped"] != 2. || all[1]["name"] != "third" || !file.closed {
		t.Errorf("the audit is %q", file.String())
	}
}

func TestAttack24ForgedAuditEntries(t *testing.T) {
	text := string(auditText(auditEntry{Event: "grant", Name: "a\"}\n{\"event\":\"x\u202e\u2028\x7f\xff\U000e0001", Principal: "ok é 日本"}))
	if strings.Count(text, "\n") != 1 || strings.ContainsAny(text, "\u202e\u2028\x7f\U000e0001") || !strings.Contains(text, "ok é 日本") {
		t.Errorf("the entry is %q", text)
	}
	if o := objects(t, text); len(o) != 1 || o[0]["name"] != "a\"}\n{\"event\":\"x\u202e\u2028\x7f\ufffd\U000e0001" {
		t.Errorf("it means %v", o)
	}
}

func TestAttack24ForwardedAddressIsIgnored(t *testing.T) {
	t.Parallel()
	token, principal := billing()
	file := t.TempDir() + "/audit.json"
	d := serve(t, "--auth", authFile(t, principal), "--audit", file)
	d.must("/v1/acquire", url.Values{"id": {someID}, "name": {"invoice/1"}, "ttl_ms": {"30000"}, "host": {"liar"}}, func(r *http.Request) {
		bearer(token)(r)
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		r.Header.Set("Forwarded", "for=6.6.6.6")
	})
	read := func() string { b, _ := os.ReadFile(file); return string(b) }
	eventually(t, func() bool { return strings.Contains(read(), "grant") }, read)
	if text := read(); !strings.Contains(text, `"remote":"127.0.0.1"`) || strings.Contains(text, "6.6.6.6") || strings.Contains(text, "liar") {
		t.Errorf("the audit believes the client: %s", text)
	}
}
