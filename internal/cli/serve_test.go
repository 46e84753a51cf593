//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockserver/lockauth"
)

const (
	someID  = "0b6f2d1e-5a0e-4a55-9c1a-3f6f0c1c7b52"
	otherID = "1c7e3d2f-5a0e-4a55-9c1a-3f6f0c1c7b52"
)

// lockd is a server in a process of its own.
type lockd struct {
	*process
	url    string
	client *http.Client
}

var listeningAt = regexp.MustCompile(`msg=listening address=(\S+) tls=(\S+)`)

// serve starts a server on a free port of this machine, unless args say where.
func serve(t *testing.T, args ...string) *lockd {
	t.Helper()
	joined := strings.Join(args, " ")
	if !strings.Contains(joined, "--listen") && !strings.Contains(joined, "--unix") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	if !strings.Contains(joined, "--store") {
		args = append(args, "--store", "memory:", "--dev")
	}
	d := &lockd{process: start(t, append([]string{"serve"}, args...)...)}
	d.says("err", "msg=serving")
	at := listeningAt.FindStringSubmatch(d.read("err"))
	if at == nil {
		t.Fatalf("the server says %q", d.read("err"))
	}
	d.url = "http://" + at[1]
	if at[2] == "true" {
		d.url = "https://" + at[1]
	}
	d.use(&http.Transport{})
	return d
}

// use makes the requests by a transport of their own.
func (d *lockd) use(transport *http.Transport) {
	d.client = &http.Client{Transport: transport, Timeout: time.Minute}
	d.t.Cleanup(transport.CloseIdleConnections)
}

// answer is a server's answer.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

func (a answer) code() string { s, _ := a.body["code"].(string); return s }

// do sends a form, or a GET without one.
func (d *lockd) do(path string, form url.Values, change func(r *http.Request)) (answer, error) {
	d.t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, body)
	if err != nil {
		d.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	got, err := d.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	a := answer{status: got.StatusCode, header: got.Header, text: string(text)}
	if strings.Contains(got.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(text, &a.body); err != nil {
			d.t.Fatalf("%s: %v in %q", path, err, text)
		}
	}
	return a, err
}

// must is do for requests that have to be answered.
func (d *lockd) must(path string, form url.Values, change func(r *http.Request)) answer {
	d.t.Helper()
	a, err := d.do(path, form, change)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

// acquire asks for a mutex.
func (d *lockd) acquire(id, name, token string) answer {
	d.t.Helper()
	return d.must("/v1/acquire", url.Values{"id": {id}, "name": {name}, "ttl_ms": {"30000"}, "wait_ms": {"0"}}, bearer(token))
}

// bearer gives requests a token, unless it is empty.
func bearer(token string) func(*http.Request) {
	return func(r *http.Request) {
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
}

// authFile writes a file of principals, and returns its path.
func authFile(t *testing.T, principals string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "auth.json")
	replace(t, path, `{"principals":[`+principals+`]}`)
	return path
}

// replace puts a file with a text in the place of another.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// billing returns a token, and its principal, who may lock below invoice/.
func billing() (token, principal string) {
	token, hash := lockauth.NewToken()
	return token, `{"name":"billing","token_sha256":["` + hash + `"],"rights":[{"prefix":"invoice/","may":["read","lock"]}]}`
}

func TestServeLetsCurlHoldALock(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Fatal(err)
	}
	d := serve(t, "--store", sqlite(t))
	ask := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(curl, append([]string{"-sS", "--max-time", "60"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("curl %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, step := range []struct {
		want string
		args []string
	}{
		{`"state":"held"`, []string{d.url + "/v1/acquire", "-d", "name=nightly", "-d", "id=" + someID, "-d", "ttl_ms=30000"}},
		{`"state":"held"`, []string{d.url + "/v1/acquire", "-d", "name=nightly", "-d", "id=" + someID, "-d", "ttl_ms=30000"}},
		{`"code":"held"`, []string{d.url + "/v1/acquire", "-d", "name=nightly", "-d", "id=" + otherID, "-d", "ttl_ms=30000", "-d", "try=true"}},
		{"state=held\n", []string{d.url + "/v1/renew", "-d", "id=" + someID, "-H", "Accept: text/plain"}},
		{`"result":"released"`, []string{d.url + "/v1/release", "-d", "name=nightly", "-d", "id=" + someID}},
		{`"status":"ready"`, []string{d.url + "/readyz"}},
	} {
		if got := ask(step.args...); !strings.Contains(got, step.want) {
			t.Errorf("curl %q answered %q, want %q", step.args, got, step.want)
		}
	}
}

func TestAttack12ServeKeepsResumableHoldsAtItsEnd(t *testing.T) {
	t.Parallel()
	store := sqlite(t)
	first := serve(t, "--store", store, "--drain", "10ms")
	got := first.acquire(someID, "nightly", "")
	first.signal(syscall.SIGTERM)
	first.end().want(t, 0, "", "leaving")

	second := serve(t, "--store", store)
	if other := second.must("/v1/acquire", url.Values{"id": {otherID}, "name": {"nightly"}, "ttl_ms": {"30000"}, "try": {"true"}}, nil); other.status != http.StatusConflict {
		t.Errorf("another client was answered %d %s", other.status, other.text)
	}
	token := regexp.MustCompile(`"token":(\d+)`).FindStringSubmatch(got.text)
	if token == nil {
		t.Fatalf("the answer is %s", got.text)
	}
	again := second.must("/v1/acquire", url.Values{"id": {someID}, "name": {"nightly"}, "ttl_ms": {"30000"}, "resume": {token[1]}}, nil)
	if again.body["state"] != "held" || again.body["token"] != got.body["token"] {
		t.Errorf("at the second server: %d %s, at the first: %s", again.status, again.text, got.text)
	}
	second.must("/v1/release", url.Values{"id": {someID}, "name": {"nightly"}}, nil)
	second.signal(syscall.SIGTERM)
	second.end().want(t, 0, "", "leaving")
}

func TestServeEndsAtOnceAtASecondSignal(t *testing.T) {
	t.Parallel()
	d := serve(t, "--drain", "1h")
	d.acquire(someID, "nightly", "")
	d.signal(syscall.SIGTERM)
	d.says("err", "leaving")
	if a := d.must("/readyz", nil, nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("ready while it leaves: %d %s", a.status, a.text)
	}
	d.signal(syscall.SIGTERM)
	d.end().want(t, exitSignal+int(syscall.SIGTERM), "", "ended by signal")
}

func TestServeRefusesBadCommandLines(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := authFile(t, "")
	if err := os.Chmod(open, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no arguments", []string{"now"}},
		{"--auth is empty", []string{"--auth", ""}},
		{"--listen is empty", []string{"--listen", ""}},
		{"given together", []string{"--tls-cert", file}},
		{"--client-ca needs --tls-cert", []string{"--client-ca", file}},
		{"--client-ca needs --auth", []string{"--client-ca", file, "--tls-cert", file, "--tls-key", file}},
		{"negative", []string{"--drain", "-1s"}},
		{"not positive", []string{"--max-holds", "0"}},
		{"not positive", []string{"--min-ttl", "0s"}},
		{"not HOST:PORT", []string{"--dev", "--listen", "7420"}},
		{"not HOST:PORT", []string{"--dev", "--listen", "127.0.0.1:http"}},
		{"written by others", []string{"--dev", "--auth", open}},
		{"no such file", []string{"--dev", "--auth", file + ".none"}},
		{"certificate", []string{"--dev", "--tls-cert", file, "--tls-key", file}},
		{"is not a socket", []string{"--dev", "--unix", file}},
		{"give --tls-cert, --tls-key, --auth,", []string{"--dev", "--listen", "0.0.0.0:0"}},
		{"give --tls-cert, --tls-key, --auth,", []string{"--dev", "--listen", ":0"}},
		{"give --tls-cert, --tls-key, or", []string{"--dev", "--listen", "[::]:0", "--auth", authFile(t, "")}},
	} {
		args := append([]string{"serve"}, c.args...)
		if !strings.Contains(strings.ToLower(strings.Join(c.args, " ")), "--store") {
			args = append(args, "--store", "memory:")
		}
		holdfastHere(args...).want(t, exitUsage, "", c.want)
	}
}

func TestServeRefusesAnAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	holdfastHere("serve", "--dev", "--store", "memory:", "--listen", l.Addr().String()).want(t, exitUnavailable, "", "in use")
}

func TestServeTokenPrintsATokenAndItsHash(t *testing.T) {
	t.Parallel()
	r := holdfastHere("serve", "token", "billing").want(t, 0, "holdfast_", `"name": "billing"`)
	token := strings.TrimSpace(r.out)
	if !strings.Contains(r.err, lockauth.HashToken(token)) || strings.Contains(r.err, token) {
		t.Errorf("token %q, entry %q", r.out, r.err)
	}
	if _, err := lockauth.ParseRules([]byte(`{"principals":[` + r.err + `]}`)); err != nil {
		t.Errorf("the entry %q: %v", r.err, err)
	}
	o := objects(t, holdfastHere("serve", "token", "billing", "--json").out)
	if len(o) != 1 || o[0]["token_sha256"] != lockauth.HashToken(o[0]["token"].(string)) {
		t.Errorf("JSON is %v", o)
	}
	holdfastHere("serve", "token").want(t, exitUsage, "", "NAME is missing")
	holdfastHere("serve", "token", "local").want(t, exitUsage, "", "without credentials")
}

func TestServeReadsTheAuthFileAgain(t *testing.T) {
	t.Parallel()
	token, principal := billing()
	path := authFile(t, principal)
	d := serve(t, "--auth", path, "--audit", filepath.Join(t.TempDir(), "audit.json"))
	if a := d.acquire(someID, "invoice/1", token); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.text)
	}
	replace(t, path, "{") // broken
	d.signal(syscall.SIGHUP)
	d.says("err", "stays in force")
	if a := d.acquire(someID, "invoice/1", token); a.status != http.StatusOK {
		t.Errorf("after a bad file: %d %s", a.status, a.text)
	}
	replace(t, path, `{"principals":[]}`)
	d.says("err", `msg="read again" subject=auth`) // without a signal
	if a := d.must("/v1/renew", url.Values{"id": {someID}}, bearer(token)); a.status != http.StatusUnauthorized {
		t.Errorf("a revoked token renews: %d %s", a.status, a.text)
	}
}

func TestServeWritesAnAuditAndReopensIt(t *testing.T) {
	t.Parallel()
	token, principal := billing()
	file := filepath.Join(t.TempDir(), "audit.json")
	d := serve(t, "--auth", authFile(t, principal), "--audit", file)
	d.acquire(someID, "invoice/1", token)
	d.acquire(otherID, "salary/\u202e1", token)
	read := func(file string) string { b, _ := os.ReadFile(file); return string(b) }
	eventually(t, func() bool { return strings.Count(read(file), "\n") == 2 }, func() string { return read(file) })
	entries := objects(t, read(file))
	grant, denied := entries[0], entries[1]
	if grant["event"] != "grant" || grant["principal"] != "billing" || grant["name"] != "invoice/1" || grant["token"] == nil ||
		grant["remote"] != "127.0.0.1" || grant["hashed_id"] == nil || grant["server"] == nil || grant["time"] == nil {
		t.Errorf("grant: %v", grant)
	}
	if denied["event"] != "denied" || denied["code"] != "forbidden" || denied["principal"] != "billing" {
		t.Errorf("refusal: %v", denied)
	}
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	d.signal(syscall.SIGHUP)
	d.says("err", "subject=audit")
	d.must("/v1/release", url.Values{"id": {someID}, "name": {"invoice/1"}}, bearer(token))
	eventually(t, func() bool { return strings.Contains(read(file), `"event":"release"`) }, func() string { return read(file) })
	if all := read(file) + read(file+".1"); strings.Contains(all, token) || strings.Contains(all, someID) || strings.Contains(all, "\u202e") {
		t.Errorf("the audit has a token, an id or a mark of direction: %s", all)
	}
}

func TestServeAnswersProbesWithoutTLSAndAuth(t *testing.T) {
	t.Parallel()
	d := serve(t, "--auth", authFile(t, ""), "--admin-listen", "127.0.0.1:0", "--audit", filepath.Join(t.TempDir(), "audit"))
	if a := d.must("/metrics", nil, nil); a.status != 401 {
		t.Errorf("metrics for everybody: %d %s", a.status, a.text)
	}
	at := regexp.MustCompile(`"listening for probes" address=(\S+)`).FindStringSubmatch(d.read("err"))
	if at == nil {
		t.Fatal(d.read("err"))
	}
	d.url = "http://" + at[1]
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/v1/server": 404} {
		a := d.must(path, nil, func(r *http.Request) { r.Host = "pod.example.org" })
		if a.status != status || path == "/metrics" && !strings.Contains(a.text, "\nholdfast_server_audit_dropped_total 0\n") {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
	}
}

func TestServeOnAUnixSocketKnowsItsPeer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	d := serve(t, "--unix", path)
	d.url = "http://localhost"
	d.use(&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	a := d.must("/v1/server", nil, nil)
	if want := `"principal":"uid:` + strconv.Itoa(os.Geteuid()); !strings.Contains(a.text, want) || !strings.Contains(a.text, `"may":["read","lock","metrics","break"]`) {
		t.Errorf("the server says %s, want %s and break", a.text, want)
	}
	holdfastHere("serve", "--dev", "--store", "memory:", "--unix", path).want(t, exitUnavailable, "", "another server")
	if a := d.must("/v1/server", nil, nil); a.status != 200 {
		t.Errorf("after another server: %d", a.status)
	}
	d.must("/readyz", nil, nil)
	_ = d.cmd.Process.Kill()
	d.wait()
	serve(t, "--unix", path) // takes the place of a socket that nobody answers
}

// shortDir returns a folder for sockets, whose paths have to be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestAttack25ServeLeavesAForeignSocketAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	holdfastHere("serve", "--dev", "--store", "memory:", "--unix", path).want(t, exitUnavailable, "", "another process answers")
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket is gone: %v", err)
	}
}

func TestServeListensOnASocketOfSystemd(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(shortDir(t), "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	// The shell knows its own pid, which the variable has to have.
	p := command(t)
	p.cmd = exec.Command("/bin/sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", os.Args[0], "serve", "--dev", "--store", "memory:")
	p.cmd.Dir = p.dir
	p.cmd.Env = append(os.Environ(), asHoldfast+"=1", "LISTEN_FDS=1", "NOTIFY_SOCKET="+notify.LocalAddr().String())
	p.cmd.ExtraFiles = []*os.File{file}
	errors, err := os.Create(p.path("err"))
	if err != nil {
		t.Fatal(err)
	}
	defer errors.Close()
	p.cmd.Stderr = errors
	d := &lockd{process: p.start(), url: "http://" + l.Addr().String()}
	d.use(&http.Transport{})
	receive := func(want string) {
		t.Helper()
		if err := notify.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		if n, err := notify.Read(b); err != nil || string(b[:n]) != want {
			t.Fatalf("systemd receives %q, %v; want %s", b[:n], err, want)
		}
	}
	receive("READY=1")
	if a := d.acquire(someID, "nightly", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.text)
	}
	d.must("/v1/release", url.Values{"id": {someID}, "name": {"nightly"}}, nil)
	d.signal(syscall.SIGTERM)
	receive("STOPPING=1")
	d.end().want(t, 0, "", "leaving")
}

// TestServeNeverPrintsATokenOrAnID searches all output for secrets.
func TestServeNeverPrintsATokenOrAnID(t *testing.T) {
	t.Parallel()
	token, principal := billing()
	audit := filepath.Join(t.TempDir(), "audit.json")
	d := serve(t, "--auth", authFile(t, principal), "--audit", audit)
	d.acquire(someID, "invoice/1", token)
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") },
		func(r *http.Request) { r.Header.Set("Authorization", "Basic "+token) },
		func(r *http.Request) { r.URL.RawQuery = "token=" + token },
		func(r *http.Request) { r.URL.RawQuery = "id=" + someID },
	} {
		if a := d.must("/v1/server", nil, change); a.status == 200 || strings.Contains(a.text, token) || strings.Contains(a.text, someID) {
			t.Errorf("%d %s", a.status, a.text)
		}
	}
	d.must("/v1/release", url.Values{"id": {someID}, "name": {"invoice/1"}}, bearer(token))
	d.signal(syscall.SIGTERM)
	d.end()
	b, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{d.read("out"), d.read("err"), string(b)} {
		if strings.Contains(text, token) || strings.Contains(text, someID) || strings.Contains(text, lockauth.HashToken(token)) {
			t.Errorf("a secret is in %q", text)
		}
	}
	if !bytes.Contains(b, []byte("unauthenticated")) {
		t.Errorf("no refusal in the audit: %s", b)
	}
}
