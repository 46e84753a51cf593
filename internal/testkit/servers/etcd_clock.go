package servers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// RestartAhead restarts the member with a monotonic clock that is ahead of the
// machine's by so many seconds; 0 is the machine's clock. It needs Linux, and
// root.
func (m *EtcdMember) RestartAhead(t testing.TB, ahead time.Duration) {
	t.Helper()
	if out, err := exec.Command("unshare", "--time", "--monotonic", "1", "true").CombinedOutput(); err != nil {
		Lack(t, fmt.Sprintf("no clocks of one's own: unshare: %v: %s; run as root on Linux", err, out))
	}
	m.ahead = ahead
	m.Restart(t)
	ours, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		t.Fatal(err)
	}
	if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/time", m.PID())); err != nil || (its == ours) != (ahead == 0) {
		t.Fatalf("the member's clocks are %s, the test's %s: %v", its, ours, err)
	}
}

// Renumber replaces the last revision in the data of a single server by a later
// number. The last revision has to be that of a key put by itself. The server
// is stopped and started again.
func (m *EtcdMember) Renumber(t testing.TB, from, to int64) {
	t.Helper()
	m.Stop()
	revision := func(n int64) []byte {
		return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint64(nil, uint64(n)), '_'), 0)
	}
	file := filepath.Join(m.dir, "member", "snap", "db")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, revision(from)) {
		t.Fatalf("revision %d is not in the data", from)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(data, revision(from), revision(to)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.boot(); err != nil {
		t.Fatal(err)
	}
}
