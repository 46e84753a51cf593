package servers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// sbin are the folders of servers that a user's PATH may lack.
var sbin = []string{"/usr/sbin", "/usr/local/sbin", "/sbin", "/opt/homebrew/bin"}

// Find returns the path of the first of the programs that is installed. The
// variable env, if it is set, names the program instead: a build of another
// version. Without a program the test ends as by [Lack]; install says how to
// get one.
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

// output runs a program that comes with a server, and returns what it printed, less the
// end of its last line. An error has what the program reported.
func output(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var out, report strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &report
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(path), err, strings.TrimSpace(report.String()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// executable reports whether a path names a program.
func executable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// Lack ends a test that cannot run here: the test fails if CI is set, and is
// skipped elsewhere. why says how to make it run.
func Lack(t testing.TB, why string) {
	t.Helper()
	end := t.Skip
	if os.Getenv("CI") != "" {
		end = t.Fatal
	}
	end(why)
}

// FreePort returns a loopback TCP port that is free now. The port is below the
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

// The ports of test servers are in blocks, each of which belongs to the process
// that listens on its first port. So no two processes give the same port to two
// servers, or that of a server that is down for a moment to another one.
const (
	firstPort, lastPort = 10_000, 30_000
	portsPerBlock       = 50
)

// ports are those of this process's newest block that it has not given away.
var ports struct {
	sync.Mutex
	next, end int
	claims    []net.Listener // open until the process ends
}

// freePort returns a port on which nothing listens, and each port once: tests
// that run at the same time bind theirs later.
func freePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	var err error
	for range 1000 {
		if ports.next == ports.end {
			if err = claimPortsLocked(); err != nil {
				continue
			}
		}
		port := ports.next
		ports.next++
		var l net.Listener
		if l, err = listen(port); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// claimPortsLocked tries to claim one block, by chance.
func claimPortsLocked() error {
	first := firstPort + portsPerBlock*rand.IntN((lastPort-firstPort)/portsPerBlock)
	l, err := listen(first)
	if err != nil {
		return err
	}
	ports.claims = append(ports.claims, l)
	ports.next, ports.end = first+1, first+portsPerBlock
	return nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
