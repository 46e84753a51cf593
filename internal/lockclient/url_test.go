package lockclient

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, tt := range []struct {
		url  string
		want string // the hosts; with "error: ", what the error says
	}{
		{"holdfast://localhost", "localhost:7420"},
		{"holdfast://a:1,[::1]", "a:1 [::1]:7420"},
		{"holdfasts://a.example.org/", "a.example.org:7420"},
		{"holdfast-unix:/run/hold%20fast/sock", "/run/hold fast/sock"},
		{"holdfast-unix:/run/sock?token_file=/t", "/run/sock"},
		{"holdfast://127.0.0.1?token_file=/t", "127.0.0.1:7420"},
		{"holdfasts://a?token_file=/t&server_name=b", "a:7420"},
		{"http://localhost", "error: holdfast-unix:"},
		{"holdfast://token@localhost", "error: token_file"},
		{"holdfast://localhost/path", "error: has a path"},
		{"holdfast://localhost:0", "error: a port"},
		{"holdfast://localhost:http", "error: a port"},
		{"holdfast://::1", "error: brackets"},
		{"holdfast://", "error: malformed"},
		{"holdfast://a,a:7420", "error: twice"},
		{"holdfast://a?ttl=1", "error: unknown option \"ttl\""},
		{"holdfast://a?token_file=/s&token_file=/t", "error: more than once"},
		{"holdfast://a.example.org?token_file=/t", "error: holdfasts:// only"},
		{"holdfast://a?ca=/c", "error: option ca needs the scheme holdfasts"},
		{"holdfast://a#b", "error: percent-encoded"},
		{"holdfast://a?b;c", "error: cannot be parsed"},
		{"holdfast-unix:run/sock", "error: absolute"},
		{"holdfast-unix://host/run/sock", "error: absolute"},
		{"holdfast-unix:", "error: absolute"},
	} {
		a, err := parseURL(tt.url)
		says, wrong := strings.CutPrefix(tt.want, "error: ")
		switch {
		case wrong && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%s: %v, want an error that says %q", tt.url, err, says)
		case !wrong && err != nil:
			t.Errorf("%s: %v", tt.url, err)
		case !wrong && strings.Join(a.hosts, " ") != tt.want:
			t.Errorf("%s: %q", tt.url, a.hosts)
		}
	}
}

// TestTokenFile reads a token anew for each request, and shows none in errors.
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	a := &address{tokenFile: file}
	if _, err := a.bearer(); err == nil || !strings.Contains(err.Error(), "token_file") {
		t.Errorf("no file: %v", err)
	}
	for content, want := range map[string]string{"s3cret\n": "s3cret", " s3cret ": "s3cret", "": "", "\n": "", "s3cret\nmore": "", "s3crèt": ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := a.bearer()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", content, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3c") {
			t.Errorf("%q: the error has the token: %v", content, err)
		}
	}
}
