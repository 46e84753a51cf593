//go:build unix

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/internal/cli/guard"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// hushed is a password that nothing may show, as it is or as a URL has it.
const hushed = "hunter2Qx/%zz"

// TestSecretsOfUnreachableStores: every verb fails on every store, with a
// password in the URL in each form and place, and shows none of it.
func TestSecretsOfUnreachableStores(t *testing.T) {
	addr := fmt.Sprintf("127.0.0.1:%d", servers.FreePort(t)) // on which no other server will listen
	for _, scheme := range anylock.Schemes() {
		if scheme == "memory" || scheme == "sqlite" || scheme == "holdfast-unix" {
			continue
		}
		hosts, after := addr, map[string]string{"postgres": "/d", "postgresql": "/d", "mysql": "/d", "mariadb": "/d",
			"redis-sentinel": "/main", "rediss-sentinel": "/main"}[scheme]
		if strings.HasPrefix(scheme, "redlock") {
			hosts = strings.Join([]string{addr, "127.0.0.1:1", "127.0.0.1:2"}, ",")
		}
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			for _, url := range []string{
				scheme + "://u:" + strings.NewReplacer("/", "%2F", "%", "%25").Replace(hushed) + "@" + hosts + after + map[string]string{"zk": "?dial_timeout=200ms", "zks": "?dial_timeout=200ms"}[scheme],
				scheme + "://u:" + hushed + "@" + hosts + after, // not as it should be written
				scheme + "://u:hunter2Qx@" + hosts + after + "?no_such_option=1",
				scheme + "://" + hosts + after + "?password=hunter2Qx",
			} {
				for _, args := range [][]string{
					{"ls"}, {"show", "n"}, {"doctor"}, {"watch", "--json"}, {"break", "--force", "n"},
					{"run", "--wait", "100ms", "n", "--", "true"}, {"torture", "--duration", "1s", "--processes", "1"},
				} {
					r := holdfastHere(append([]string{"--store", url}, args...)...)
					if r.status == exitOK {
						t.Errorf("%v on %s went well", args, anylock.Redact(url))
					}
					if strings.Contains(r.out+r.err, "hunter2Qx") {
						t.Errorf("%v on %s shows the password: %q %q", args, anylock.Redact(url), r.out, r.err)
					}
				}
			}
		})
	}
}

// TestSecretsInTheProcessList: who has the URL in a file sees no password in the
// arguments of holdfast, of its guard, or of the command, nor does the command
// find it in its environment.
func TestSecretsInTheProcessList(t *testing.T) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		servers.Lack(t, "the arguments of processes are read from /proc: "+err.Error())
	}
	s := servers.Redis(t, servers.RedisOptions{Password: "hunter2Qx"})
	dir := t.TempDir()
	file, seen := filepath.Join(dir, "store"), filepath.Join(dir, "seen")
	if err := os.WriteFile(file, []byte(s.URL("")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := holdfastHere("--store-file", file, "run", "n", "--", "sh", "-c",
		`for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done >"$1" 2>/dev/null; env >>"$1"`, "sh", seen)
	if r.status != exitOK {
		t.Fatalf("%+v", r)
	}
	b, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "hunter2Qx") && !strings.Contains(line, "redis-server") && !strings.Contains(line, "requirepass") {
			t.Errorf("for everybody to see: %s", line)
		}
	}
	if !strings.Contains(string(b), guard.Verb) || !strings.Contains(string(b), "HOLDFAST_TOKEN=") {
		t.Errorf("the guard or the environment was not looked at:\n%s", b)
	}
}
