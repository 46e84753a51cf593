//go:build unix

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestDoctor(t *testing.T) {
	everywhere(t, func(t *testing.T, url string) {
		r := holdfastHere("--store", url, "doctor").want(t, exitOK, "LEVEL", "")
		for _, topic := range []string{"url", "round trip", "clock"} {
			if !strings.Contains(r.out, topic) {
				t.Errorf("nothing about %s in\n%s", topic, r.out)
			}
		}
		all := objects(t, holdfastHere("--store", url, "--json", "doctor").want(t, exitOK, "", "").out)
		if len(all) < 3 || all[0]["topic"] != "url" || all[0]["store"] != url {
			t.Errorf("%v", all)
		}
	})
	holdfastHere("--store", "memory:", "doctor", "all").want(t, exitUsage, "", "no arguments")
}

// TestDoctorFindsEviction has a store with something to find: a server that may throw
// locks away.
//
// Covers: F35.
func TestDoctorFindsEviction(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{Args: []string{"--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"}})
	r := holdfastHere("--store", s.URL(""), "doctor").want(t, exitNo, "problem", "")
	if !strings.Contains(r.out, "eviction") || !strings.Contains(r.out, "-> ") || r.err != "" {
		t.Errorf("%+v", r)
	}
	found := false
	for _, o := range objects(t, holdfastHere("--store", s.URL(""), "--json", "doctor").want(t, exitNo, "", "").out) {
		found = found || o["level"] == "problem" && o["topic"] == "eviction" && o["advice"] != ""
	}
	if !found {
		t.Error("no problem with the eviction in JSON")
	}
}

func TestDoctorReportsUnreachableStore(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", servers.FreePort(t)) // on which no other server will listen
	r := holdfastHere("--store", "redis://:hunter2Qx@"+addr, "doctor").want(t, exitUnavailable, "", addr)
	if strings.Contains(r.err, "hunter2Qx") {
		t.Errorf("the password is in %q", r.err)
	}
	r = holdfastHere("--json", "--store", "redis://"+addr, "doctor").want(t, exitUnavailable, "", "")
	if o := objects(t, r.err); o[0]["status"] != 69.0 || o[0]["reason"] != "store unavailable" {
		t.Errorf("%v", o)
	}
}

// TestDoctorShowsNoPassword: a wrong one is told, a right one is not shown.
func TestDoctorShowsNoPassword(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{Password: "hunter2Qx"})
	wrong := holdfastHere("--store", "redis://:Hunter3Qx@"+s.Addr(), "doctor").want(t, exitUnavailable, "", "")
	right := holdfastHere("--store", s.URL(""), "doctor").want(t, exitOK, "can read the password in the command line", "")
	file := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(file, []byte(s.URL("")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	filed := holdfastHere("--store-file", file, "doctor").want(t, exitOK, "redis://:***@"+s.Addr(), "")
	if strings.Contains(filed.out, "command line") {
		t.Errorf("%s", filed.out)
	}
	for _, r := range []result{wrong, right, filed} {
		if all := r.out + r.err; strings.Contains(all, "hunter2Qx") || strings.Contains(all, "Hunter3Qx") {
			t.Errorf("the password is in %q", all)
		}
	}
}
