package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// TestF114_LessRights runs the suite's cases about users to whom an access list
// gives only some rights.
//
// Covers: F114 on zookeeper.
func TestF114_LessRights(t *testing.T) {
	t.Parallel()
	u := newUsers(t, servers.ZooKeeper(t, servers.ZooKeeperOptions{}))
	out := make(map[string]string)
	for _, c := range drivertest.Cases() {
		if !strings.HasPrefix(c.Name, "rights-") {
			out[c.Name] = "TestDriverConformance asks it"
		}
	}
	drivertest.Run(t, drivertest.Harness{
		Open: func(t drivertest.T) driver.Driver {
			d, err := u.open("full", u.list("", 0))
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			return d
		},
		TTL:      2 * time.Second,
		LeaveOut: out,
		Rights:   &drivertest.Rights{Needed: []string{"create", "read", "write", "delete"}, User: u.user},
	})
}

// users are the users of a server, with one password. Every access list names
// all of them.
type users struct {
	s    *servers.ZooKeeperServer
	conn *zk.Conn // as the user "full"
	n    atomic.Int32
}

const (
	rightsRoot = "/rights"
	manyUsers  = 16
)

var permissions = map[string]int32{"create": zk.PermCreate, "read": zk.PermRead, "write": zk.PermWrite, "delete": zk.PermDelete}

func newUsers(t *testing.T, s *servers.ZooKeeperServer) *users {
	t.Helper()
	u := &users{s: s, conn: raw(t, s.Addrs()...)}
	if err := u.conn.AddAuth("digest", []byte("full:secret")); err != nil {
		t.Fatal(err)
	}
	if _, err := u.conn.Create(rightsRoot, nil, 0, u.list("", 0)); err != nil {
		t.Fatal(err)
	}
	return u
}

// list returns an access list: everything for everybody, but one user lacks
// these permissions.
func (u *users) list(name string, without int32) []zk.ACL {
	acl := zk.DigestACL(zk.PermAll, "full", "secret")
	for i := range manyUsers {
		user, perms := fmt.Sprintf("u%d", i+1), int32(zk.PermAll)
		if user == name {
			perms &^= without
		}
		acl = append(acl, zk.DigestACL(perms, user, "secret")...)
	}
	return acl
}

func (u *users) open(name string, acl []zk.ACL) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := zklock.Connect(ctx, u.s.Addrs(), &zklock.Options{Root: rightsRoot, User: name, Password: "secret", ACL: acl, Tick: 2 * u.s.Tick})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// user makes a user with all rights below the root but these.
func (u *users) user(t drivertest.T, without ...string) drivertest.User {
	t.Helper()
	n := u.n.Add(1)
	if n > manyUsers {
		t.Fatalf("only %d users are in the lists", manyUsers)
	}
	name, lacks := fmt.Sprintf("u%d", n), int32(0)
	for _, right := range without {
		lacks |= permissions[right]
	}
	u.take(t, name, lacks)
	return drivertest.User{
		Open:   func(drivertest.T) (driver.Driver, error) { return u.open(name, u.list(name, lacks)) },
		Revoke: func(t drivertest.T, right string) { u.take(t, name, permissions[right]) },
	}
}

// take takes permissions from a user, at all existing nodes.
func (u *users) take(t drivertest.T, name string, lacks int32) {
	t.Helper()
	id := zk.DigestACL(0, name, "secret")[0].ID
	var walk func(path string) error
	walk = func(path string) error {
		acl, _, err := u.conn.GetACL(path)
		if err == nil {
			for i := range acl {
				if acl[i].ID == id {
					acl[i].Perms &^= lacks
				}
			}
			_, err = u.conn.SetACL(path, acl, -1)
		}
		if err == zk.ErrNoNode {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		children, _, err := u.conn.Children(path)
		if err != nil && err != zk.ErrNoNode {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, c := range children {
			if err := walk(path + "/" + c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(rightsRoot); err != nil {
		t.Fatalf("take rights from %s: %v", name, err)
	}
}

// TestF114_MarksWithoutRights takes rights to the marks from a user. The user's locks
// work, Check says that Once does not and which right lacks, and Once has a clear error.
func TestF114_MarksWithoutRights(t *testing.T) {
	t.Parallel()
	u := newUsers(t, servers.ZooKeeper(t, servers.ZooKeeperOptions{}))
	full, err := u.open("full", u.list("", 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = full.Close() })
	marker := full.(driver.Marker)
	if err := marker.SetMark(t.Context(), "done", driver.Mark{Token: 1}); err != nil {
		t.Fatal(err)
	}
	const marks = rightsRoot + "/%marks"
	for i, right := range []string{"", "create", "write", "read"} {
		name := fmt.Sprintf("u%d", i+1)
		for _, path := range []string{marks, marks + "/done"} {
			acl, _, err := u.conn.GetACL(path)
			if err != nil {
				t.Fatal(err)
			}
			for j := range acl {
				if acl[j].ID == zk.DigestACL(0, name, "secret")[0].ID {
					acl[j].Perms &^= permissions[right]
				}
			}
			if _, err := u.conn.SetACL(path, acl, -1); err != nil {
				t.Fatal(err)
			}
		}
		d, err := u.open(name, u.list("", 0))
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.Do(t.Context(), "job", func(context.Context) error { return nil }); err != nil {
			t.Errorf("without %q: Do: %v", right, err)
		}
		findings, err := c.Check(t.Context())
		said := fmt.Sprint(err)
		for _, f := range findings {
			if f.Topic == "once" {
				said = fmt.Sprint(f.Level, f.Detail, f.Advice)
			}
		}
		job := "done" // which has a mark
		if right == "create" {
			job = "new"
		}
		_, once := c.Once(t.Context(), job, time.Unix(1800000000+int64(i), 0), func(context.Context) error { return nil })
		t.Logf("without %q: Check: %s; Once: %v", right, said, once)
		var failed *holdfast.StoreError
		if right == "" && (once != nil || !strings.Contains(said, "can be read")) ||
			right != "" && (!errors.As(once, &failed) || !failed.Refused() || !strings.Contains(said, "no right to "+right)) {
			t.Errorf("without %q: Check: %s; Once: %v", right, said, once)
		}
	}
	if after, _, err := u.conn.Children(marks); err != nil || len(after) != 1 {
		t.Errorf("Check left %q, %v", after, err)
	}
}
