package zklock_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestLayoutOfNodes checks the nodes on the server. A ticket is a protected ephemeral
// sequential node whose data name its holder. The zxid of the transaction that
// created the node is the ticket's token, to which the core adds a byte for
// local hand-offs.
func TestLayoutOfNodes(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	const note = "in the words of the holder"
	c := newClient(t, s.URL("", ""), holdfast.WithNote(note))
	const uuid = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`
	for kind, lock := range map[string]struct {
		take func(name string) (*holdfast.Hold, error)
		node string
	}{
		"mutex":     {func(n string) (*holdfast.Hold, error) { return c.Mutex(n).Lock(t.Context()) }, `-lock-`},
		"reader":    {func(n string) (*holdfast.Hold, error) { return c.RWMutex(n).RLock(t.Context()) }, `-__READ__`},
		"writer":    {func(n string) (*holdfast.Hold, error) { return c.RWMutex(n).Lock(t.Context()) }, `-__WRIT__`},
		"semaphore": {func(n string) (*holdfast.Hold, error) { return c.Semaphore(n, 7).Acquire(t.Context(), 2) }, `-sem-7-2-`},
	} {
		name := unique("layout/" + kind)
		h, err := lock.take(name)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		nodes := children(t, look, lineOf(name))
		if len(nodes) != 1 || !regexp.MustCompile(`^_c_`+uuid+lock.node+`\d{10}$`).MatchString(nodes[0]) {
			t.Fatalf("%s: the line has %q", kind, nodes)
		}
		data, stat, err := look.Get(lineOf(name) + "/" + nodes[0])
		if err != nil {
			t.Fatal(err)
		}
		if uint64(stat.Czxid) != h.Token()>>8 {
			t.Errorf("%s: the token is %d, and the node was created by %d", kind, h.Token(), stat.Czxid)
		}
		if stat.EphemeralOwner == 0 || !strings.Contains(string(data), note) {
			t.Errorf("%s: the node belongs to session %#x, and its data are %q", kind, stat.EphemeralOwner, data)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// TestContainersAreRemoved checks that a queue, and the nodes that it needs above it, are
// containers, which the server removes when they stay empty. The nodes that a
// session needs are made once.
func TestContainersAreRemoved(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	d, w := openWire(t, s.Addrs(), s.Tick)
	warm := ticket2(unique("containers/warm"), 1)
	join(t, d, warm, driver.Held)
	w.reset()
	tk := ticket2(unique("containers/n"), 2)
	join(t, d, tk, driver.Held)
	if _, each := w.ops(); each[opContainer] == 0 || each[opCreate] > 0 {
		t.Errorf("a new line is made by %v, want containers and nothing that stays", each)
	}
	leave(t, d, tk, driver.Held)
	leave(t, d, warm, driver.Held)
}

// TestACL checks that with a user, only this user may use the nodes, and that
// everybody may where the URL says so.
func TestACL(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	if err := look.AddAuth("digest", []byte("ann:secret")); err != nil {
		t.Fatal(err)
	}
	for query, scheme := range map[string]string{"": "digest", "&acl=creator": "digest", "&acl=open": "world"} {
		root := unique("/acl")
		url := strings.Replace(s.URL("", "root="+root+query), "zk://", "zk://ann:secret@", 1)
		h, err := newClient(t, url).Mutex("n").Lock(t.Context())
		if err != nil {
			t.Fatalf("%q: %v", query, err)
		}
		queue := root + "/n"
		for _, path := range []string{root, queue, queue + "/" + children(t, look, queue)[0]} {
			acl, _, err := look.GetACL(path)
			if err != nil || len(acl) != 1 || acl[0].Scheme != scheme || acl[0].Perms != zk.PermAll {
				t.Errorf("%q: the ACL of %s is %+v, %v; want the scheme %s", query, path, acl, err, scheme)
			}
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// TestBreakForeign checks that the lock of another library is shown by the name
// of its node, and can be broken by that name.
func TestBreakForeign(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("break-foreign")
	conn := raw(t, s.Addrs()...)
	c := newClient(t, s.URL("", "root=/"))
	theirs := zk.NewLock(conn, "/"+name, zk.WorldACL(zk.PermAll))
	if err := theirs.Lock(); err != nil {
		t.Fatal(err)
	}
	node := children(t, conn, "/"+name)[0]
	queue, err := c.Inspect(t.Context(), name)
	if err != nil || len(queue.Holders)+len(queue.Waiters) != 1 || queue.Holders[0].ID != node {
		t.Fatalf("the line is %+v, %v; want the ticket %q", queue, err, node)
	}
	if err := c.Break(t.Context(), name, node+"0"); !errors.Is(err, holdfast.ErrNoTicket) {
		t.Errorf("Break of nobody: %v", err)
	}
	if err := c.Break(t.Context(), name, node); err != nil {
		t.Fatal(err)
	}
	h, err := c.Mutex(name).TryLock(t.Context())
	if err != nil {
		t.Fatalf("after Break: %v", err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
}
