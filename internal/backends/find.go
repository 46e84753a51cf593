package backends

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sbin are folders where systems keep servers and that a user's PATH may lack.
var sbin = []string{"/usr/sbin", "/usr/local/sbin", "/sbin", "/opt/homebrew/bin"}

// Find returns the path of the first of the programs that is installed. The
// variable env, when it is set, names the program instead: a build of another
// version. Without a program the test ends as by [Lack]; install says what would help.
func Find(t testing.TB, env, install string, programs ...string) string {
	t.Helper()
	path, err := lookUp(env, programs)
	if err == nil {
		return path
	}
	Lack(t, fmt.Sprintf("%v; install %s, or set %s to the program's path", err, install, env))
	return ""
}

func lookUp(env string, programs []string) (string, error) {
	if path := os.Getenv(env); path != "" {
		return exec.LookPath(path)
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
		for _, dir := range sbin {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not installed", strings.Join(programs, " or "))
}

// Lack ends a test that cannot run here: it fails where CI is set, and is skipped
// elsewhere. why says what would help.
func Lack(t testing.TB, why string) {
	t.Helper()
	end := t.Skip
	if os.Getenv("CI") != "" {
		end = t.Fatal
	}
	end(why)
}

// FreePort returns a loopback TCP port that nobody uses now. It is below the
// range from which systems number outgoing connections, so that a server that
// is restarted finds its port free.
func FreePort(t testing.TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func freePort() (int, error) {
	var err error
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}
