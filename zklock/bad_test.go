package zklock_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

func openErr(t *testing.T, url string) (*zklock.Driver, error) {
	t.Helper()
	d, err := zklock.Open(t.Context(), url)
	if err == nil {
		d.Close()
	}
	return d, err
}

func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "zk://", "redis://h", "zk://h,,i", "zk://h/a//b", "zk://h/../b", "zk://h?root=/a/./b", "zk://h?acl=none", "zk://h?acl=creator",
		"zk://h?tick=0s", "zk://h?tick=fast", "zk://h?unknown=1", "zk://h?tick=1s&tick=2s", "zk://h?ca=/x", "zks://h?ca=/does/not/exist",
		"zks://h?cert=/does/not/exist", "zk://:secret@h", "zk://u:secret@h:port", "zk://u:secret@h#x", "zk://u:secret@h/%zz", "zk://h?dial_timeout=-1s",
	} {
		begun := time.Now()
		_, err := openErr(t, url)
		if err == nil {
			t.Errorf("%q is taken", url)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
		if time.Since(begun) > 5*time.Second {
			t.Errorf("%q: the error took %v", url, time.Since(begun))
		}
	}
	if _, err := zklock.Connect(t.Context(), nil, nil); err == nil {
		t.Error("no servers are taken")
	}
	if _, err := zklock.New(t.Context(), nil, nil, nil); err == nil {
		t.Error("no connection is taken")
	}
}

// TestNotZooKeeper checks that Open returns a clear error where something other
// than ZooKeeper answers, and where nothing does.
func TestNotZooKeeper(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.NotFoundHandler()}
	go web.Serve(l)
	defer web.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	chatty, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer chatty.Close()
	go func() {
		for {
			c, err := chatty.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			c.Close()
		}
	}()
	var wg sync.WaitGroup
	defer wg.Wait()
	for addr, says := range map[string]string{
		chatty.Addr().String(): "not a ZooKeeper",
		l.Addr().String():      "",
		silent.Addr().String(): "no session within",
		closed.Addr().String(): "connection refused",
	} {
		wg.Go(func() {
			_, err := openErr(t, "zk://"+addr+"?dial_timeout=1s")
			if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), says) {
				t.Errorf("error is %v (%v), want one that says %q", err, driver.ClassOf(err), says)
			}
		})
	}
}

// TestF123_SilentServerIsNotOneThatCloses checks that the error of Open says that a server
// which accepted the connection does not answer.
func TestF123_SilentServerIsNotOneThatCloses(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, err = openErr(t, "zk://"+silent.Addr().String()+"?dial_timeout=4s")
	if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "does not answer") || strings.Contains(err.Error(), "closes") {
		t.Errorf("error is %v (%v)", err, driver.ClassOf(err))
	}
}

// TestF90_NoChroot checks that a missing chroot is refused and not made, and
// that an existing one is enough.
func TestF90_NoChroot(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	chroot := "/" + unique("chroot")
	_, err := openErr(t, s.URL(chroot, ""))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), chroot+" does not exist") {
		t.Errorf("error is %v (%v)", err, driver.ClassOf(err))
	}
	if there, _, err := look.Exists(chroot); err != nil || there {
		t.Errorf("the chroot was made: %v", err)
	}
	if _, err := look.Create(chroot, []byte("app"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, s.URL(chroot, ""))
	h, err := c.Mutex("a/b").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := children(t, look, chroot+"/holdfast/a%2Fb"); len(got) != 1 || !strings.Contains(got[0], "-lock-") {
		t.Errorf("the line has %q", got)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestF90_ForeignNodes checks that foreign nodes stay as they are, and that no
// foreign client waits behind nodes that the driver leaves.
//
// Covers: F37.
func TestF90_ForeignNodes(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	d := open(t, s.URL("", "root=/"))
	defer d.Close()
	acl := zk.WorldACL(zk.PermAll)
	mk := func(path, data string, flags int32) {
		t.Helper()
		if _, err := look.Create(path, []byte(data), flags, acl); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(name, says string) {
		t.Helper()
		for _, wait := range []bool{true, false} {
			_, err := d.Join(t.Context(), ticket2(name, 1), wait)
			if driver.ClassOf(err) != driver.Refused || err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("wait=%v: error is %v, want one that says %q", wait, err, says)
			}
		}
	}

	data := unique("foreign-data")
	mk("/"+data, "precious", 0)
	refused(data, "somebody's data")
	if b, _, err := look.Get("/" + data); err != nil || string(b) != "precious" {
		t.Errorf("the data are %q, %v", b, err)
	}
	if left := children(t, look, "/"+data); len(left) > 0 {
		t.Errorf("%q are left", left)
	}

	ephemeral := unique("foreign-ephemeral")
	mk("/"+ephemeral, "", zk.FlagEphemeral)
	refused(ephemeral, "")

	// A node like a ticket's that no session owns would never go: no ticket may
	// wait for it.
	stuck := unique("foreign-ticket")
	mk("/"+stuck, "", 0)
	mk("/"+stuck+"/lock-0000000000", "precious", 0)
	if _, err := d.Join(t.Context(), ticket2(stuck, 1), true); driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "lock-0000000000") {
		t.Errorf("error is %v", err)
	}
	if left := children(t, look, "/"+stuck); len(left) != 1 {
		t.Errorf("%q are left", left)
	}

	// A foreign child may stand for a lock of another layout (F90, F131).
	beside := unique("foreign-child")
	mk("/"+beside, "", 0)
	mk("/"+beside+"/config", "precious", 0)
	refused(beside, "config")
	if _, err := d.Inspect(t.Context(), beside); driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "config") {
		t.Errorf("Inspect: %v", err)
	}
	if left := children(t, look, "/"+beside); len(left) != 1 {
		t.Errorf("%q are left", left)
	}
}

// TestWrongCredentialsAreOneError checks that without the right user there is one clear error,
// which does not show the password.
func TestWrongCredentialsAreOneError(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	root := unique("/private")
	with := func(user string) string {
		return strings.Replace(s.URL("", "root="+root), "zk://", "zk://"+user, 1)
	}
	c := newClient(t, with("ann:s%40cret@"))
	h, err := c.Mutex("n").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "ann:wr0ng@", "bob:s%40cret@"} {
		d, err := openErr(t, with(user))
		if driver.ClassOf(err) != driver.Refused || strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "s@cret") {
			t.Errorf("as %q: %v, %v (%v)", user, d, err, driver.ClassOf(err))
		}
	}
	other := newClient(t, with("ann:s%40cret@"))
	if _, err := other.Mutex("n").TryLock(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the same user: %v", err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	fs, err := c.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fs {
		t.Logf("%v: %s: %s %s", f.Level, f.Topic, f.Detail, f.Advice)
		if f.Topic == "access" && f.Level != driver.OK {
			t.Errorf("a private path is judged as %v", f)
		}
	}
}

// TestUsersConnection checks a driver on a connection that the user has made.
//
// Covers: F56.
func TestUsersConnection(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	tap := zklock.NewTap(nil)
	conn, events, err := zk.Connect(s.Addrs(), 5*time.Second, zk.WithDialer(tap.Dial), zk.WithEventCallback(tap.Event), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		conn.Close()
		for range events {
		}
	}()
	d, err := zklock.New(t.Context(), conn, tap, &zklock.Options{Tick: s.Tick})
	if err != nil {
		t.Fatal(err)
	}
	tr := d.Traits()
	if tr.MaxTTL > 5*time.Second || tr.MaxTTL < 4*time.Second || tr.MinTTL < tr.MaxTTL*9/10 {
		t.Errorf("TTLs from %v to %v in a session of 5 s", tr.MinTTL, tr.MaxTTL)
	}
	c, err := holdfast.New(d) // the default TTL is adapted to the session's
	if err != nil {
		t.Fatal(err)
	}
	if c.TTL() != tr.MaxTTL {
		t.Errorf("TTL %v, want %v", c.TTL(), tr.MaxTTL)
	}
	name := unique("own-connection")
	h, err := c.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := newClient(t, s.URL("", ""))
	got := make(chan error, 1)
	go func() {
		h, err := other.Mutex(name).Lock(context.Background())
		if err == nil {
			err = h.Unlock()
		}
		got <- err
	}()
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := conn.Children("/"); err != nil {
		t.Errorf("after Close the user's connection says: %v", err)
	}
}
