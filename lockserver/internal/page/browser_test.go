package page_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
)

var (
	lane     = flag.Bool("page", false, "run the lane, which needs the Debian packages chromium and chromium-driver")
	pictures = flag.String("page.pictures", "", "the folder to write pictures of the page to; none if empty")
)

// site is a lock server on a store in memory, with a client beside it.
type site struct {
	*testing.T
	url   string
	store *memlock.Store
	locks *holdfast.Client
}

var (
	operator = lockserver.Principal{Name: "ops", Grants: []lockserver.Grant{{May: []lockserver.Right{"read", "break"}}}}
	reader   = lockserver.Principal{Name: "reader", Grants: []lockserver.Grant{{Prefix: "open/", May: []lockserver.Right{"read"}}}}
)

func newSite(t *testing.T, anybody *lockserver.Principal) *site {
	t.Helper()
	s := &site{T: t, store: memlock.NewStore()}
	own, theirs := s.client(), s.client()
	server, err := lockserver.New(own, lockserver.Options{Auth: &lockserver.Auth{Identify: func(r *http.Request) (lockserver.Principal, error) {
		switch given := r.Header.Get("Authorization"); {
		case given == "Bearer ops-token":
			return operator, nil
		case given == "Bearer reader-token":
			return reader, nil
		case given == "" && anybody != nil:
			return *anybody, nil
		}
		return lockserver.Principal{}, errors.New("no such token")
	}}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Drain(ctx)
		web.CloseClientConnections()
		web.Close()
		_ = theirs.Close()
		_ = own.Close()
	})
	s.url, s.locks = web.URL+"/", theirs
	return s
}

// client returns a client of the store, as another process has it.
func (s *site) client() *holdfast.Client {
	s.Helper()
	c, err := holdfast.New(memlock.New(s.store))
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// party returns the options of a lock that a process of another host takes.
func party(host string, pid int, note string) []holdfast.Option {
	return []holdfast.Option{holdfast.WithHolder(holdfast.Holder{Host: host, PID: pid}), holdfast.WithNote(note)}
}

func (s *site) hold(name, host string, pid int, note string) *holdfast.Hold {
	s.Helper()
	hold, err := s.locks.Mutex(name, party(host, pid, note)...).Lock(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return hold
}

// waits puts a process into the queue of a name, and returns once it is there. It gives
// the lock up at the end of the test.
func (s *site) waits(name, host string, pid int) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	before := s.waiting(name)
	own := s.client()
	go func() {
		defer close(done)
		defer own.Close()
		if hold, err := own.Mutex(name, party(host, pid, "")...).Lock(ctx); err == nil {
			<-ctx.Done()
			_ = hold.Unlock()
		}
	}()
	s.Cleanup(func() { cancel(); <-done })
	for s.waiting(name) == before {
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *site) waiting(name string) int {
	info, err := s.locks.Inspect(context.Background(), name)
	if err != nil {
		s.Fatal(err)
	}
	return len(info.Waiters)
}

// row is an expression: the row of the lock whose name is the first argument.
const row = `[...document.querySelectorAll("#rows th")].find(e => e.innerText === arguments[0])?.parentElement`

// TestPageIsLive checks that locks and waiters come, change and go on the page.
func TestPageIsLive(t *testing.T) {
	if !*lane {
		return
	}
	s, b := newSite(t, &operator), openBrowser(t)
	b.visit(s.url)
	b.wait(`document.querySelector("#count").innerText === "0 locks in use."`)
	hold := s.hold("nightly", "app-1", 11, "close of May")
	b.wait(row+`?.cells[2].innerText === "pid 11 on app-1"`, "nightly")
	s.waits("nightly", "app-2", 22)
	s.waits("nightly", "app-3", 33)
	b.wait(row+`?.cells[4].innerText === "2"`, "nightly")
	b.eval(row+`.querySelector("button").click()`, "nightly")
	b.wait(`[...document.querySelectorAll("tr.open ol:last-of-type li")].map(e => e.innerText.match(/pid \d+/)[0]).join() === "pid 22,pid 33"`)
	if err := hold.Unlock(); err != nil {
		t.Fatal(err)
	}
	b.wait(row+`.cells[2].innerText === "pid 22 on app-2"`, "nightly")
	b.wait(`document.querySelector("#news").innerText.includes("nightly is now held by pid 22 on app-2")`)
	if bad := b.complaints(); len(bad) > 0 {
		t.Errorf("the browser complains: %q", bad)
	}
}

// TestPageShowsChains checks that the page says who waits for whom, and marks a circle.
func TestPageShowsChains(t *testing.T) {
	if !*lane {
		return
	}
	s, b := newSite(t, &operator), openBrowser(t)
	defer func(a, c *holdfast.Hold) { _, _ = a.Unlock(), c.Unlock() }(s.hold("orders", "app-1", 11, ""), s.hold("stock", "app-2", 22, ""))
	s.waits("stock", "app-1", 11)
	s.waits("orders", "app-2", 22)
	b.visit(s.url)
	b.wait(row+`?.cells[4].innerText === "1"`, "orders")
	b.eval(row+`.querySelector("button").click()`, "orders")
	b.wait(`document.querySelector("tr.open ul")?.innerText === "pid 11 on app-1 holds orders and waits for stock, held by pid 22 on app-2.\n" +
		"pid 22 on app-2 holds stock and waits for orders, held by pid 11 on app-1. This may be a circle."`)
}

// TestPageByKeyboard checks that the keyboard reaches everything: the search, a row,
// and a break, whose dialog begins at Cancel; and that the focus stays where it was.
func TestPageByKeyboard(t *testing.T) {
	if !*lane {
		return
	}
	s, b := newSite(t, &operator), openBrowser(t)
	for _, name := range []string{"alpha", "beta", "nightly"} {
		defer s.hold(name, "app-1", 11, "").Unlock()
	}
	s.waits("nightly", "app-2", 22)
	b.visit(s.url)
	b.wait(`document.querySelector("#count").innerText === "3 locks in use."`)
	b.tabTo("To the locks")
	b.tabTo("Search for")
	b.press("night")
	b.wait(`document.querySelector("#count").innerText === "1 of 3 locks in use."`)
	b.tabTo("nightly")
	b.press(keyEnter)
	b.wait(`document.activeElement.getAttribute("aria-expanded") === "true"`)
	b.tabTo("Break the ticket of pid 11 on app-1")
	b.press(keyEnter)
	if at := b.focused(); at != "Cancel" {
		t.Errorf("the dialog begins at %q", at)
	}
	if text := fmt.Sprint(b.eval(`document.querySelector("#confirm").innerText`)); !strings.Contains(text, "Lock: nightly") ||
		!strings.Contains(text, "Holder: pid 11 on app-1, asked") || !strings.Contains(text, "1 waiter.") {
		t.Errorf("the dialog says %q", text)
	}
	b.picture("serve-page-break")
	b.press(keyEscape)
	b.wait(`!document.querySelector("#confirm").open`)
	b.wait(`document.activeElement.dataset.ticket !== undefined`)
	if n := s.waiting("nightly"); n != 1 {
		t.Fatalf("Cancel has broken the lock: %d waiters", n)
	}
	s.waits("nightly", "app-3", 33) // a change of what is shown
	b.wait(`document.querySelectorAll("tr.open ol li").length === 3`)
	if at := b.focused(); !strings.HasPrefix(at, "Break the ticket of pid 11") {
		t.Errorf("after a change the focus is at %q", at)
	}
	b.press(keyEnter, keyTab, keyEnter)
	b.wait(row+`?.cells[2].innerText === "pid 22 on app-2"`, "nightly")
	b.wait(`document.querySelector("#problem").innerText === ""`)
	if at := b.focused(); at == "" || b.eval(`document.activeElement === document.body`) == true {
		t.Error("after a break the focus is lost")
	}
}

// TestPageHidesWhatMayNotBeSeen checks signing in: no token, a wrong one, and one with
// fewer rights, which sees its prefix and no buttons.
func TestPageHidesWhatMayNotBeSeen(t *testing.T) {
	if !*lane {
		return
	}
	s, b := newSite(t, nil), openBrowser(t)
	defer s.hold("open/a", "app-1", 11, "").Unlock()
	defer s.hold("secret/b", "app-1", 11, "").Unlock()
	b.visit(s.url)
	b.wait(`document.activeElement.id === "token"`)
	b.press("wrong", keyEnter)
	b.wait(`document.querySelector("#problem").innerText === "The server does not know this token."`)
	b.wait(`document.activeElement.id === "token"`)
	b.press("reader-token", keyEnter)
	b.wait(`document.querySelector("#count").innerText === "1 lock in use."`)
	if got := b.eval(`location.href + document.cookie + localStorage.length + sessionStorage.length + document.querySelector("#token").value`); got != s.url+"00" {
		t.Errorf("the token stays somewhere: %v", got)
	}
	b.eval(row+`.querySelector("button").click()`, "open/a")
	b.wait(`document.querySelectorAll("tr.open li").length === 1`)
	if n := b.eval(`document.querySelectorAll("tr.open button").length`); n != 0.0 {
		t.Errorf("%v buttons without the right to break", n)
	}
	if text := fmt.Sprint(b.eval(`document.body.textContent`)); strings.Contains(text, "secret/") {
		t.Error("the page has a lock without the right to read it")
	}
	got := b.eval(`await fetch("v1/break", {method: "POST", headers: {"Content-Type": "application/json", Authorization: "Bearer reader-token"},
		body: JSON.stringify({name: "open/a", ticket: "x"})}).then(r => r.status)`)
	if got != 403.0 {
		t.Errorf("a break without the right: %v", got)
	}
}

// TestAttack19PageShowsTextAsText checks names, notes and hosts that are markup, scripts, marks
// of direction and control characters, and that the policy is in force.
func TestAttack19PageShowsTextAsText(t *testing.T) {
	if !*lane {
		return
	}
	corpus := map[string]string{ // name → as it is shown
		`<img src=x onerror="document.pwned=1">`:     `<img src=x onerror="document.pwned=1">`,
		`</script><script>document.pwned=1</script>`: `</script><script>document.pwned=1</script>`,
		`<svg/onload=document.pwned=1>`:              `<svg/onload=document.pwned=1>`,
		`<iframe srcdoc="<script>parent.pwned=1">`:   `<iframe srcdoc="<script>parent.pwned=1">`,
		`javascript:document.pwned=1`:                `javascript:document.pwned=1`,
		`{{constructor.constructor('pwned=1')()}}`:   `{{constructor.constructor('pwned=1')()}}`,
		"&lt;b&gt; &amp;":                            "&lt;b&gt; &amp;",
		"__proto__":                                  "__proto__",
		"invoice/\u202e24\u202c":                     `"invoice/\u202e24\u202c"`,
		"tab\tnewline\nzero\u200bwidth":              `"tab\u0009newline\u000azero\u200bwidth"`,
		"a\u00a0b":                                   `"a\u00a0b"`,
		`"quoted"`:                                   `"\"quoted\""`,
		"tags\U000e0041":                             `"tags\U000e0041"`,
		"עברית":                                      "עברית",
		strings.Repeat("long/", 200):                 strings.Repeat("long/", 200),
	}
	s, b := newSite(t, &operator), openBrowser(t)
	for name := range corpus {
		text := strings.Map(func(r rune) rune {
			if r < ' ' {
				return ' ' // notes have no control characters
			}
			return r
		}, name[:min(len(name), 500)])
		defer s.hold(name, text[:min(len(text), 60)], 11, text).Unlock()
	}
	b.visit(s.url)
	b.wait(fmt.Sprintf(`document.querySelector("#count").innerText === "%d locks in use."`, len(corpus)))
	b.eval(`document.querySelectorAll("#rows th button").forEach(e => e.click())`)
	b.wait(fmt.Sprintf(`document.querySelectorAll("tr.open li").length === %d`, len(corpus)))
	var got []string
	for _, text := range b.eval(`[...document.querySelectorAll("#rows th bdi")].map(e => e.textContent)`).([]any) {
		got = append(got, text.(string))
	}
	for name, want := range corpus {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not shown as %q", name, want)
		}
	}
	// A dialog has the same text.
	b.eval(`document.querySelector("tr.open li button").click()`)
	if got := b.eval(`document.querySelectorAll("img, svg, iframe, b, #rows script").length`); got != 0.0 {
		t.Errorf("%v elements came from names", got)
	}
	if b.eval(`document.pwned === undefined && window.pwned === undefined && ({}).pwned === undefined`) != true {
		t.Error("a name was run")
	}
	if wide := b.eval(`document.documentElement.scrollWidth > document.documentElement.clientWidth`); wide == true {
		t.Error("a long name makes the page wider than the window")
	}
	if bad := b.complaints(); len(bad) > 0 {
		t.Errorf("the browser complains: %q", bad)
	}
	for _, try := range []string{
		`(() => { document.body.innerHTML = "<i>x</i>" })()`, `(() => { document.body.setAttribute("onclick", "1") })()`,
		`(() => { document.body.insertAdjacentHTML("beforeend", "<i>") })()`, `(() => { document.createElement("script").src = "/page.js" })()`,
	} {
		if raw, err := b.try(http.MethodPost, "/execute/sync", map[string]any{"script": "return " + try, "args": []any{}}); err == nil {
			t.Errorf("the policy allows %s: %s", try, raw)
		}
	}
	// The driver's own scripts may use eval, and what they start may not.
	b.eval(`void setTimeout(() => { try { eval("document.pwned = 1") } catch { document.refused = true } })`)
	b.wait(`document.refused === true`)
	b.eval(`(() => { const e = document.createElement("p"); e.id = "styled"; e.setAttribute("style", "position: fixed"); document.body.append(e); })()`)
	if b.eval(`getComputedStyle(document.querySelector("#styled")).position`) != "static" {
		t.Error("the policy allows inline styles")
	}
	b.eval(`(() => { const e = document.createElement("img"); e.src = "https://example.invalid/x.png"; document.body.append(e); })()`)
	if b.eval(`document.pwned === undefined`) != true {
		t.Error("a text was run")
	}
	if blocked := strings.Join(b.complaints(), "\n"); !strings.Contains(blocked, "img-src") && !strings.Contains(blocked, "default-src") {
		t.Errorf("no word about a picture from elsewhere: %s", blocked)
	}
}

// TestPageOfTenThousandQueues checks that the page is of use within a second from a
// warm scan, and that a search and another order take less than that.
func TestPageOfTenThousandQueues(t *testing.T) {
	if !*lane {
		return
	}
	const n = 10_000
	s, b := newSite(t, &operator), openBrowser(t)
	for i := range n {
		s.hold(fmt.Sprintf("orders/%05d", i), fmt.Sprintf("app-%d", i%50), 1000+i%7, "")
	}
	for i := range 300 {
		s.waits(fmt.Sprintf("orders/%05d", i*7), "app-1", 5000+i)
	}
	load := func() float64 {
		b.visit(s.url)
		b.wait(`document.body.dataset.usable !== undefined`)
		b.wait(`document.querySelector("#count").innerText === "10,000 locks in use."`)
		ms := 0.0
		_, _ = fmt.Sscan(fmt.Sprint(b.eval(`document.body.dataset.usable`)), &ms)
		return ms
	}
	t.Logf("cold, on memory: usable after %.0f ms", load())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"v1/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(watch) // another viewer keeps the scan warm
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var warm []float64
	for range 5 {
		warm = append(warm, load())
	}
	slices.Sort(warm)
	t.Logf("warm: usable after %v ms", warm)
	if warm[2] >= 1000 {
		t.Errorf("usable after %v ms, the median of five; the bar is 1,000 ms", warm[2])
	}
	took := b.eval(`(() => { const begun = performance.now(); const e = document.querySelector("#search"); e.value = "orders/0999";
		e.dispatchEvent(new Event("input")); document.body.offsetHeight; return performance.now() - begun })()`).(float64)
	if count := b.eval(`document.querySelector("#count").innerText`); count != "10 of 10,000 locks in use." {
		t.Errorf("found: %v", count)
	}
	t.Logf("a search takes %.0f ms", took)
	if took >= 1000 {
		t.Errorf("a search takes %.0f ms", took)
	}
}

// TestPageForScreenReaders checks the accessibility tree that Chromium gives to screen
// readers: each control has a name, the table its headers, the dialog its title; and
// that text has a contrast of 4.5 to 1 in both colour schemes.
func TestPageForScreenReaders(t *testing.T) {
	if !*lane {
		return
	}
	s, b := newSite(t, &operator), openBrowser(t)
	for i, name := range []string{"invoice/42", "invoice/43", "nightly/backup", "reports/may"} {
		defer s.hold(name, fmt.Sprintf("app-%d", i+1), 4711+i, []string{"close of May", "", "weekly", ""}[i]).Unlock()
	}
	for i := range 3 {
		s.waits("invoice/42", fmt.Sprintf("app-%d", 5+i), 900+i)
	}
	s.waits("nightly/backup", "app-1", 4711)
	b.visit(s.url)
	b.wait(`document.querySelector("#count").innerText === "4 locks in use."`)
	b.eval(row+`.querySelector("button").click()`, "invoice/42")
	b.wait(`document.querySelectorAll("tr.open li").length === 5`)
	b.picture("serve-page")
	for _, scheme := range []string{"light", "dark"} {
		b.devtools("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": scheme}}}, new(any))
		if bad := b.eval(contrast).([]any); len(bad) > 0 {
			t.Errorf("%s: too little contrast: %v", scheme, bad)
		}
	}
	b.devtools("Emulation.setEmulatedMedia", map[string]any{"features": []any{}}, new(any))
	tree := b.accessible()
	for _, want := range []string{
		"heading Holdfast locks", "searchbox Search for a name, holder or note", "button Pause", "status", "StaticText Live.", "StaticText 4 locks in use.",
		"region Locks in use", "columnheader Name", "columnheader Longest wait", "rowheader invoice/42", "button invoice/42", "navigation Pages",
		"heading Waiters, in order", "button Break the ticket of pid 4711 on app-1", "button Remove the ticket of pid 900 on app-5", "link To the locks",
	} {
		if !slices.Contains(tree, want) {
			t.Errorf("the tree has no %q", want)
		}
	}
	b.eval(`document.querySelector("tr.open li button").click()`)
	tree = append(tree, b.accessible()...)
	if !slices.Contains(tree, "dialog Break this lock?") {
		t.Error("the dialog has no title")
	}
	for _, node := range tree {
		role, name, _ := strings.Cut(node, " ")
		if name == "" && slices.Contains([]string{"button", "searchbox", "textbox", "checkbox", "link", "dialog", "heading", "columnheader"}, role) {
			t.Errorf("a %s without a name", role)
		}
	}
	if t.Failed() {
		t.Logf("%q", tree)
	}
}

// contrast is an expression: the texts whose contrast is below 4.5 to 1.
const contrast = `(() => {
	const light = (c) => { const [r, g, b] = c.match(/[\d.]+/g).map(x => { x /= 255; return x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4 }); return .2126 * r + .7152 * g + .0722 * b };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return c }
		return matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(18, 18, 18)" : "rgb(255, 255, 255)" };
	return [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() && !e.disabled && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).filter(e => {
		const a = light(getComputedStyle(e).color), b = light(behind(e)); return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5 }).map(e => e.textContent) })()`

// accessible returns the role and the name of each node that a screen reader gets.
func (b *browser) accessible() (nodes []string) {
	b.Helper()
	var tree struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
		}
	}
	b.devtools("Accessibility.getFullAXTree", nil, &tree)
	for _, n := range tree.Nodes {
		if !n.Ignored && n.Role.Value != nil {
			name := ""
			if n.Name.Value != nil {
				name = strings.Join(strings.Fields(fmt.Sprint(n.Name.Value)), " ")
			}
			nodes = append(nodes, strings.TrimSpace(fmt.Sprint(n.Role.Value)+" "+name))
		}
	}
	return nodes
}

// picture writes a picture for the documentation, if that is asked for.
func (b *browser) picture(name string) {
	b.Helper()
	if *pictures == "" {
		return
	}
	full, err := png.Decode(bytes.NewReader(b.shot()))
	if err != nil {
		b.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, fewColours(full)); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), out.Bytes(), 0o666); err != nil {
		b.Fatal(err)
	}
}

// fewColours returns a picture with the 16 most frequent colours of another, which
// makes a small file.
func fewColours(full image.Image) image.Image {
	count := make(map[color.Color]int)
	r := full.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			count[full.At(x, y)]++
		}
	}
	var palette color.Palette = slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	out := image.NewPaletted(r, palette[:min(len(palette), 16)])
	draw.Draw(out, r, full, r.Min, draw.Src)
	return out
}
