package servers

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var networks = flag.Bool("servers.networks", false, "test networks too, which are for root alone")

// TestNetworkSplits checks that servers on hosts of their own reach each other
// and the test, until a wire is cut in one direction, or in both.
func TestNetworkSplits(t *testing.T) {
	if !*networks {
		t.Log("left out: networks are for root; say -servers.networks")
		return
	}
	// A network whose process has ended is removed.
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("%s%d-1h1", networkPrefix, gone.Process.Pid)
	if out, err := exec.Command("ip", "netns", "add", left).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n := NewNetwork(t)
	if out, err := exec.Command("ip", "netns", "list").Output(); err != nil || strings.Contains(string(out), left) || !strings.Contains(string(out), n.id) {
		t.Errorf("the networks are %s, %v", out, err)
	}
	a, b := n.Host(t), n.Host(t)
	first := Redis(t, RedisOptions{Host: a})
	second := Redis(t, RedisOptions{Host: b, Args: []string{"--replicaof", a.Addr(), port(first), "--repl-timeout", "1"}})
	up := func() bool { return second.Info(t, "replication", "master_link_status") == "up" }
	eventually(t, up)
	one, other := []*Host{a}, []*Host{b}
	for what, cut := range map[string]func() (func() error, error){
		"there": func() (func() error, error) { return n.Cut(one, other) },
		"back":  func() (func() error, error) { return n.Cut(other, one) },
		"both":  func() (func() error, error) { return n.Split(one, other) },
	} {
		heal, err := cut()
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return !up() })
		if err := heal(); err != nil {
			t.Fatal(err)
		}
		eventually(t, up)
		t.Log(what)
	}
	heal, err := n.Split(one, []*Host{n.Self()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	if conn, err := new(net.Dialer).DialContext(ctx, "tcp", first.Addr()); err == nil {
		conn.Close()
		t.Error("the test reached a host from which it is cut off")
	}
	if err := heal(); err != nil {
		t.Fatal(err)
	}
	first.Do(t, "PING")
}

func port(s *RedisServer) string {
	_, p, _ := net.SplitHostPort(s.Addr())
	return p
}
