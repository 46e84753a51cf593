package servers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Network is a network of hosts, each a network namespace with an address of
// its own, and a router between them. The router is a namespace too, and
// silently drops the packets that it is told to drop, in one direction or both.
// A Network needs Linux, and the rights of root. Its methods are safe for
// concurrent use.
type Network struct {
	id     string // of the namespaces; that of the router is id with "r"
	ip     string // the program
	subnet string // of all addresses, without the last number

	mu    sync.Mutex
	hosts int
	self  *Host
}

// Host is one host of a [Network]. A nil Host is the machine of the test.
type Host struct {
	ip, space string // space is empty for the test's own address
	addr      string
}

// networkPrefix begins the names of all namespaces, before the id of the process
// that made them.
const networkPrefix = "holdfast-"

// NewNetwork creates a network for one test, without hosts. The network ends
// with the test, after everything that the test starts in it later. The network
// of a process that was killed is removed by the next NewNetwork.
func NewNetwork(t testing.TB) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		Lack(t, "networks are for root alone")
	}
	n := &Network{ip: Find(t, "HOLDFAST_IP", "iproute2", "ip")}
	n.sweep()
	n.id = fmt.Sprintf("%s%d-%x", networkPrefix, os.Getpid(), rand.Uint32())
	router := n.id + "r"
	t.Cleanup(func() { _ = n.do("", "netns del "+router) }) // removes the wires too
	err := n.do("", "netns add "+router)
	if err == nil {
		// Forwarding is a setting of the namespace.
		out, failed := exec.Command(n.ip, "netns", "exec", router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward").CombinedOutput()
		if err = failed; err != nil {
			err = fmt.Errorf("let the router forward: %w: %s", err, out)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // other processes may have the addresses, or take them first
		n.subnet = fmt.Sprintf("10.%d.%d.", 213+rand.IntN(8), rand.IntN(256))
		if n.self, err = n.join(""); err == nil {
			return n
		}
	}
	t.Fatal(err)
	return nil
}

// sweep removes the namespaces of processes that have ended.
func (n *Network) sweep() {
	out, err := exec.Command(n.ip, "netns", "list").Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ours := strings.CutPrefix(name, networkPrefix)
		pid, _, _ := strings.Cut(rest, "-")
		if id, err := strconv.Atoi(pid); ours && err == nil && syscall.Kill(id, 0) == syscall.ESRCH {
			_ = n.do("", "netns del "+name)
		}
	}
}

// do runs lines of ip commands, in a namespace or in the test's own.
func (n *Network) do(space string, lines ...string) error {
	args := []string{"-batch", "-"}
	if space != "" {
		args = append([]string{"-n", space}, args...)
	}
	cmd := exec.Command(n.ip, args...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %s: %w: %s", strings.Join(lines, "; "), err, out)
	}
	return nil
}

// Host adds a host. It ends with the test.
func (n *Network) Host(t testing.TB) *Host {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts++
	space := n.id + "h" + strconv.Itoa(n.hosts)
	t.Cleanup(func() { _ = n.do("", "netns del "+space) })
	err := n.do("", "netns add "+space)
	var h *Host
	if err == nil {
		h, err = n.join(space)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// join connects a namespace, or the test's own, to the router by a wire.
func (n *Network) join(space string) (*Host, error) {
	router, wire, end := n.id+"r", "w"+strconv.Itoa(n.hosts), "eth0"
	near := n.subnet + strconv.Itoa(4*n.hosts+1)
	h := &Host{ip: n.ip, space: space, addr: n.subnet + strconv.Itoa(4*n.hosts+2)}
	peer, way := "netns "+space, "default"
	if space == "" { // an interface's name has room for 15 letters
		end, way = fmt.Sprintf("hf%x", rand.Uint32()), n.subnet+"0/24"
		peer = "netns " + strconv.Itoa(os.Getpid())
	}
	if err := n.do(router, fmt.Sprintf("link add %s type veth peer name %s %s", wire, end, peer),
		fmt.Sprintf("addr add %s/30 dev %s", near, wire), "link set "+wire+" up"); err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("addr add %s/30 dev %s", h.addr, end), "link set " + end + " up",
		fmt.Sprintf("route add %s via %s", way, near)}
	if space != "" {
		lines = append(lines, "link set lo up")
	}
	err := n.do(space, lines...)
	if err != nil {
		_ = n.do(router, "link del "+wire)
	}
	return h, err
}

// Self is the test itself, as the hosts see it.
func (n *Network) Self() *Host { return n.self }

// Cut drops all packets from any host of from to any host of to, until heal is
// called. The same hosts must not be cut a second time before that.
func (n *Network) Cut(from, to []*Host) (heal func() error, err error) {
	var rules []string
	for _, a := range from {
		for _, b := range to {
			if a != b {
				rules = append(rules, fmt.Sprintf("from %s to %s blackhole", a.addr, b.addr))
			}
		}
	}
	each := func(what string) error {
		var lines []string
		for _, r := range rules {
			lines = append(lines, "rule "+what+" "+r)
		}
		return n.do(n.id+"r", lines...)
	}
	return func() error { return each("del") }, each("add")
}

// Split is Cut in both directions.
func (n *Network) Split(one, other []*Host) (heal func() error, err error) {
	there, err := n.Cut(one, other)
	if err != nil {
		return there, err
	}
	back, err := n.Cut(other, one)
	return func() error {
		if err := there(); err != nil {
			return err
		}
		return back()
	}, err
}

// Addr returns the address of the host, without a port.
func (h *Host) Addr() string {
	if h == nil {
		return "127.0.0.1"
	}
	return h.addr
}

// Command returns the command that runs the given one on the host, in the same
// process.
func (h *Host) Command(command ...string) []string {
	if h == nil || h.space == "" {
		return command
	}
	return append([]string{h.ip, "netns", "exec", h.space}, command...)
}

// hostOf returns the host of the i-th of several servers, nil if there are no
// hosts.
func hostOf(hosts []*Host, i int) *Host {
	if len(hosts) == 0 {
		return nil
	}
	return hosts[i]
}
