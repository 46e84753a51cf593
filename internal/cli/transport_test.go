//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
)

func TestTransport(t *testing.T) {
	for url, want := range map[string]struct {
		weakness string // reported by doctor
		loud     bool   // and every verb
	}{
		"redis://h":                                    {"in the clear", false},
		"redis://:a@b@h/1":                             {"in the clear", false},
		"redis://localhost:1":                          {},
		"redis://u:p@127.0.0.1:1/2":                    {},
		"redis://[::1]:1":                              {},
		"rediss://h":                                   {},
		"redis-cluster://127.0.0.1,h":                  {"in the clear", false},
		"redis-sentinel://127.0.0.1,localhost/n":       {},
		"redlock://a,b,c":                              {"in the clear", false},
		"redlocks://a,b,c":                             {},
		"etcd://h":                                     {"in the clear", false},
		"etcds://h":                                    {},
		"zk://h/c":                                     {"in the clear", false},
		"zks://h":                                      {},
		"postgres://h/d":                               {"not verified", false},
		"postgres://h/d?sslmode=disable":               {"in the clear", true},
		"postgres://127.0.0.1/d?sslmode=disable":       {},
		"postgres://h/d?sslmode=prefer":                {"not verified", true},
		"postgresql://h/d?sslmode=allow":               {"not verified", true},
		"postgres://h/d?sslmode=require":               {"not verified", true},
		"postgres://h/d?sslmode=require&sslrootcert=f": {"any server", true},
		"postgres://h/d?sslmode=verify-ca":             {"any server", true},
		"postgres://h/d?sslmode=verify-full":           {},
		"postgres:///d?host=/run/postgresql":           {},
		"postgres:///d?host=h":                         {"not verified", false},
		"mysql://h/d":                                  {"in the clear", false},
		"mysql://h/d?tls=false":                        {"in the clear", true},
		"mysql://h/d?tls=preferred":                    {"not verified", true},
		"mariadb://h/d?tls=skip-verify":                {"not verified", true},
		"mysql://127.0.0.1/d?tls=skip-verify":          {},
		"mysql://h/d?tls=true":                         {},
		"mysql://h/d?tls_ca=f":                         {},
		"mysql:///d?socket=/run/s":                     {},
	} {
		w, remote := transportOf(url)
		if !remote {
			t.Errorf("%s: no servers", url)
		}
		f := w.finding()
		if (f.Level == holdfast.LevelWarning) != (want.weakness != "") || !strings.Contains(f.Detail, want.weakness) || (f.Advice != "") != (want.weakness != "") {
			t.Errorf("%s: %+v", url, f)
		}
		if loud := w.warning() != ""; loud != want.loud {
			t.Errorf("%s: warning %q", url, w.warning())
		}
	}
	for _, url := range []string{"memory:", "sqlite:/a://b", "oracle://h", "", "redis://h?%zz"} {
		if w, remote := transportOf(url); remote || w.warning() != "" {
			t.Errorf("%s: %+v", url, w)
		}
	}
	for _, scheme := range anylock.Schemes() {
		if _, remote := transportOf(scheme + "://h"); remote == (scheme == "memory" || scheme == "sqlite" || scheme == "holdfast-unix") {
			t.Errorf("%s: remote %t", scheme, remote)
		}
	}
}

// TestWeakTransportWarns: whatever the verb, and whether or not the server is
// there.
func TestWeakTransportWarns(t *testing.T) {
	const url = "mysql://u:hunter2Qx@holdfast.invalid/d?connect_timeout=1s&tls=skip-verify"
	for _, args := range [][]string{{"ls"}, {"doctor"}, {"run", "n", "--", "true"}, {"show", "n"}} {
		r := holdfastHere(append([]string{"--store", url}, args...)...)
		if !strings.Contains(r.err, "holdfast: warning: tls=skip-verify: whoever is on the way") || strings.Contains(r.err, "hunter2Qx") {
			t.Errorf("%v: %q", args, r.err)
		}
	}
	r := holdfastHere("--json", "--store", url, "ls")
	if o := objects(t, r.err); len(o) != 2 || o[0]["event"] != "warning" || !strings.Contains(o[0]["detail"].(string), "skip-verify") {
		t.Errorf("%q", r.err)
	}
}
