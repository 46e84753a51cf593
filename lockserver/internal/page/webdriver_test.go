package page_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// browser is a session of Chromium, by way of chromedriver and the WebDriver protocol.
type browser struct {
	*testing.T
	session string // the URL of the session
}

// openBrowser starts a headless Chromium, which ends with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	cmd := exec.Command("chromedriver", "--port=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("chromedriver, of the Debian package chromium-driver: %v", err)
	}
	b := &browser{T: t}
	t.Cleanup(func() {
		if b.session != "" {
			b.call(http.MethodDelete, "", nil)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	port := ""
	lines := bufio.NewScanner(out)
	for port == "" && lines.Scan() {
		if m := regexp.MustCompile(`successfully on port (\d+)`).FindStringSubmatch(lines.Text()); m != nil {
			port = m[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	base := "http://127.0.0.1:" + port + "/session"
	b.session = base
	answer := b.call(http.MethodPost, "", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"goog:loggingPrefs":  map[string]string{"browser": "ALL"},
		"goog:chromeOptions": map[string]any{"args": []string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en", "--window-size=1000,860"}},
	}}})
	var made struct{ SessionID string }
	if err := json.Unmarshal(answer, &made); err != nil || made.SessionID == "" {
		t.Fatalf("session: %v: %s", err, answer)
	}
	b.session = base + "/" + made.SessionID
	return b
}

// call sends a command and returns its value.
func (b *browser) call(method, path string, body any) json.RawMessage {
	b.Helper()
	value, err := b.try(method, path, body)
	if err != nil {
		b.Fatal(err)
	}
	return value
}

func (b *browser) try(method, path string, body any) (json.RawMessage, error) {
	var sent io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(data)
	}
	r, err := http.NewRequest(method, b.session+path, sent)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var out struct{ Value json.RawMessage }
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %.300s", method, path, out.Value)
	}
	return out.Value, nil
}

func (b *browser) visit(url string) {
	b.Helper()
	b.call(http.MethodPost, "/url", map[string]string{"url": url})
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string, args ...any) (value any) {
	b.Helper()
	if args == nil {
		args = []any{}
	}
	raw := b.call(http.MethodPost, "/execute/sync", map[string]any{"script": "return (" + expression + ")", "args": args})
	if err := json.Unmarshal(raw, &value); err != nil {
		b.Fatal(err)
	}
	return value
}

// wait waits until an expression is true.
func (b *browser) wait(expression string, args ...any) {
	b.Helper()
	for end := time.Now().Add(30 * time.Second); b.eval(expression, args...) != true; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("not in time: %s %v\n%v", expression, args, b.eval("document.body.innerText"))
		}
	}
}

// Keys of the WebDriver protocol.
const (
	keyTab    = "\ue004"
	keyEnter  = "\ue007"
	keyEscape = "\ue00c"
)

// press presses and releases keys, one after the other, as a keyboard does.
func (b *browser) press(keys ...string) {
	b.Helper()
	var actions []map[string]any
	for _, k := range keys {
		for _, one := range strings.Split(k, "") {
			actions = append(actions, map[string]any{"type": "keyDown", "value": one}, map[string]any{"type": "keyUp", "value": one})
		}
	}
	b.call(http.MethodPost, "/actions", map[string]any{"actions": []any{map[string]any{"type": "key", "id": "keyboard", "actions": actions}}})
}

// focused returns the accessible name of the element with the focus.
func (b *browser) focused() string {
	b.Helper()
	var element map[string]string
	if err := json.Unmarshal(b.call(http.MethodGet, "/element/active", nil), &element); err != nil {
		b.Fatal(err)
	}
	for _, id := range element {
		var label string
		if err := json.Unmarshal(b.call(http.MethodGet, "/element/"+id+"/computedlabel", nil), &label); err != nil {
			b.Fatal(err)
		}
		return strings.Join(strings.Fields(label), " ")
	}
	return ""
}

// tabTo presses the tabulator until an element whose accessible name begins with a text
// has the focus.
func (b *browser) tabTo(name string) {
	b.Helper()
	var passed []string
	for range 60 {
		b.press(keyTab)
		at := b.focused()
		if strings.HasPrefix(at, name) {
			return
		}
		passed = append(passed, at)
	}
	b.Fatalf("the keyboard does not reach %q; it passes %q", name, passed)
}

// devtools sends a command of the DevTools protocol.
func (b *browser) devtools(command string, params map[string]any, out any) {
	b.Helper()
	if params == nil {
		params = map[string]any{}
	}
	raw := b.call(http.MethodPost, "/goog/cdp/execute", map[string]any{"cmd": command, "params": params})
	if err := json.Unmarshal(raw, out); err != nil {
		b.Fatal(err)
	}
}

// complaints returns what the browser has reported, such as breaches of the policy.
func (b *browser) complaints() (all []string) {
	b.Helper()
	var entries []struct{ Level, Message string }
	if err := json.Unmarshal(b.call(http.MethodPost, "/se/log", map[string]string{"type": "browser"}), &entries); err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if e.Level == "SEVERE" || e.Level == "WARNING" {
			all = append(all, e.Message)
		}
	}
	return all
}

// shot returns a picture of the window, in PNG.
func (b *browser) shot() []byte {
	b.Helper()
	var text string
	if err := json.Unmarshal(b.call(http.MethodGet, "/screenshot", nil), &text); err != nil {
		b.Fatal(err)
	}
	picture, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		b.Fatal(err)
	}
	return picture
}
