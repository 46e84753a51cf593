//go:build unix

package cli

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestLockServersAreAStore uses two servers over one store by a URL, with the verbs of the
// command.
func TestLockServersAreAStore(t *testing.T) {
	t.Parallel()
	store := sqlite(t)
	a, b := serve(t, "--store", store), serve(t, "--store", store)
	url := "holdfast://" + strings.TrimPrefix(a.url, "http://") + "," + strings.TrimPrefix(b.url, "http://")
	on := func(args ...string) result { return run(t, append([]string{"--store", url}, args...)...) }

	r := on("doctor", "--json").want(t, exitOK, "", "")
	if !strings.Contains(r.out, "this client is local") || !strings.Contains(r.out, "group") {
		t.Errorf("doctor: %q", r.out)
	}
	h := lock(t, open(t, store).Mutex("invoice/42"))
	on("run", "--no-wait", "invoice/42", "--", "true").want(t, exitNotAcquired, "", "invoice/42")
	on("ls").want(t, exitOK, "invoice/42", "")
	on("show", "invoice/42").want(t, exitOK, "mutex", "")
	on("break", "--yes", "invoice/42").want(t, exitUnavailable, "", "no right to break")
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	out := on("run", "invoice/42", "--", "sh", "-c", "echo $HOLDFAST_TOKEN").want(t, exitOK, "", "").out
	if token, err := strconv.ParseUint(strings.TrimSpace(out), 10, 64); err != nil || token <= h.Token() {
		t.Errorf("run: token %q after %d: %v", out, h.Token(), err)
	}
	if out := on("ls", "--json").want(t, exitOK, "", "").out; out != "" {
		t.Errorf("left behind: %s", out)
	}
}

// TestEachVerbRefusesWrongURLsOfLockServers gives each verb that uses a store a URL without
// a host, one with a path and one with a token file that is missing: each is one line, and
// a wrong command line.
func TestEachVerbRefusesWrongURLsOfLockServers(t *testing.T) {
	t.Parallel()
	urls := map[string]string{
		"holdfast://":        "name a server",
		"holdfast://h/locks": "the servers of a store are",
		"holdfasts://h?token_file=/nowhere/token": "option token_file: open /nowhere/token",
	}
	for _, verb := range []string{"run n -- true", "ls", "show n", "watch", "break --yes n", "doctor", "bench", "torture", "serve"} {
		for url, advice := range urls {
			r := run(t, append([]string{"--store", url}, strings.Fields(verb)...)...).want(t, exitUsage, "", advice)
			if strings.Count(r.err, "\n") != 1 {
				t.Errorf("%s of %s: want one line, have %q", verb, url, r.err)
			}
		}
	}
}

// TestLockServersWithTLSAndTokens uses two servers by TLS and a token, which has the rights
// to invoice/: a lock outside of it, another token and another authority are refused, and a
// server that is killed is left for the other one.
func TestLockServersWithTLSAndTokens(t *testing.T) {
	t.Parallel()
	dir, store := t.TempDir(), sqlite(t)
	s := &secured{ca: newAuthority(t, "ca"), cert: filepath.Join(dir, "crt"), key: filepath.Join(dir, "key"), in: filepath.Join(dir, "ca")}
	s.writePair(t)
	s.writeAuthority(t, s.ca)
	token, principal := billing()
	var hosts []string
	var all []*lockd
	for range 2 {
		d := serve(t, "--store", store, "--tls-cert", s.cert, "--tls-key", s.key, "--auth", authFile(t, principal))
		all, hosts = append(all, d), append(hosts, strings.TrimPrefix(d.url, "https://"))
	}
	file, other, foreign := filepath.Join(dir, "token"), filepath.Join(dir, "other"), filepath.Join(dir, "foreign")
	wrong, _ := billing()
	replace(t, file, token+"\n")
	replace(t, other, wrong+"\n")
	(&secured{in: foreign}).writeAuthority(t, newAuthority(t, "foreign"))
	on := func(ca, file string, args ...string) result {
		r := run(t, append([]string{"--store", "holdfasts://" + strings.Join(hosts, ",") + "?ca=" + ca + "&token_file=" + file}, args...)...)
		if strings.Contains(r.out+r.err, token) || strings.Contains(r.out+r.err, wrong) {
			t.Errorf("%v: the token is shown", args)
		}
		return r
	}
	on(s.in, file, "run", "invoice/42", "--", "true").want(t, exitOK, "", "")
	on(s.in, file, "doctor").want(t, exitOK, "billing", "")
	on(s.in, file, "run", "stock/1", "--", "true").want(t, exitUnavailable, "", "no right to lock")
	on(s.in, other, "run", "invoice/42", "--", "true").want(t, exitUnavailable, "", "no valid token")
	on(foreign, file, "run", "invoice/42", "--", "true").want(t, exitUnavailable, "", "certificate")
	all[0].signal(syscall.SIGKILL)
	all[0].wait()
	on(s.in, file, "run", "invoice/42", "--", "true").want(t, exitOK, "", "")
	if r := on(s.in, file, "ls", "--json").want(t, exitOK, "", ""); r.out != "" {
		t.Errorf("left behind: %s", r.out)
	}
}
