package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestF114_LessRights runs the suite's cases about users who may not read, or
// not write.
//
// Covers: F114 on etcd.
func TestF114_LessRights(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, v servers.EtcdVersion) {
		t.Parallel()
		s := servers.Etcd(t, servers.EtcdOptions{Version: v})
		u := newUsers(t, s)
		out := make(map[string]string)
		for _, c := range drivertest.Cases() {
			if !strings.HasPrefix(c.Name, "rights-") {
				out[c.Name] = "TestDriverConformance asks it"
			}
		}
		drivertest.Run(t, drivertest.Harness{
			Open:     func(t drivertest.T) driver.Driver { return u.open(t, "root") },
			TTL:      2 * time.Second,
			Slack:    2 * time.Second,
			LeaveOut: out,
			Rights: &drivertest.Rights{
				Needed: []string{"read", "write"},
				User:   u.user,
			},
		})
	})
}

// users makes the users of a server, all with the same password.
type users struct {
	s   *servers.EtcdServer
	cli *clientv3.Client // as root
	n   atomic.Int32
}

func newUsers(t *testing.T, s *servers.EtcdServer) *users {
	t.Helper()
	plain := dialed(t, s)
	for _, step := range []func() error{
		func() error { _, err := plain.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := plain.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := plain.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	cli, err := clientv3.New(clientv3.Config{Endpoints: s.Endpoints(), DialTimeout: 10 * time.Second, Username: "root", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return &users{s: s, cli: cli}
}

// rightsPrefix is the prefix of the test's keys.
const rightsPrefix = "rights/"

func (u *users) open(t drivertest.T, name string) driver.Driver {
	t.Helper()
	d, err := u.try(name)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return d
}

func (u *users) try(name string) (driver.Driver, error) {
	d, err := etcdlock.Open(ctx, fmt.Sprintf("etcd://%s:secret@%s?prefix=%s", name, u.s.Members[0].Addr(), rightsPrefix))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// user makes a user with all rights on the prefix but these.
func (u *users) user(t drivertest.T, without ...string) drivertest.User {
	t.Helper()
	name := fmt.Sprintf("u%d", u.n.Add(1))
	for _, step := range []func() error{
		func() error { _, err := u.cli.UserAdd(ctx, name, "secret"); return err },
		func() error { _, err := u.cli.RoleAdd(ctx, name); return err },
		func() error { return u.grant(name, without...) },
		func() error { _, err := u.cli.UserGrantRole(ctx, name, name); return err },
	} {
		if err := step(); err != nil {
			t.Fatalf("a user without %q: %v", without, err)
		}
	}
	return drivertest.User{
		Open: func(drivertest.T) (driver.Driver, error) { return u.try(name) },
		Revoke: func(t drivertest.T, right string) {
			if err := u.grant(name, right); err != nil {
				t.Fatalf("withdraw %s: %v", right, err)
			}
		},
	}
}

// grant replaces the rights of a role by all rights but these. It does nothing
// if that leaves none.
func (u *users) grant(role string, without ...string) error {
	kind := clientv3.PermReadWrite
	switch read, write := !slices.Contains(without, "read"), !slices.Contains(without, "write"); {
	case !read && !write:
		return nil
	case !read:
		kind = clientv3.PermWrite
	case !write:
		kind = clientv3.PermRead
	}
	_, err := u.cli.RoleGrantPermission(ctx, role, rightsPrefix, clientv3.GetPrefixRangeEnd(rightsPrefix), clientv3.PermissionType(kind))
	return err
}

// TestF114_MarksWithoutRights gives a user all rights but those to the marks, who is
// refused when the client opens, or all but that to write them: the user's locks work,
// Check says that Once does not and which keys need rights, and Once has a clear error.
func TestF114_MarksWithoutRights(t *testing.T) {
	t.Parallel()
	u := newUsers(t, servers.Etcd(t, servers.EtcdOptions{Version: servers.EtcdNewest}))
	const marks = rightsPrefix + "%d/"
	for name, onMarks := range map[string][]clientv3.PermissionType{
		"none":  nil,
		"reads": {clientv3.PermissionType(clientv3.PermRead)}, "all": {clientv3.PermissionType(clientv3.PermReadWrite)},
	} {
		steps := []func() error{
			func() error { _, err := u.cli.UserAdd(ctx, name, "secret"); return err },
			func() error { _, err := u.cli.RoleAdd(ctx, name); return err },
			func() error { _, err := u.cli.UserGrantRole(ctx, name, name); return err },
		}
		grant := func(from, to string, kind clientv3.PermissionType) {
			steps = append(steps, func() error { _, err := u.cli.RoleGrantPermission(ctx, name, from, to, kind); return err })
		}
		grant(rightsPrefix, marks, clientv3.PermissionType(clientv3.PermReadWrite))
		grant(clientv3.GetPrefixRangeEnd(marks), clientv3.GetPrefixRangeEnd(rightsPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
		for _, kind := range onMarks {
			grant(marks, clientv3.GetPrefixRangeEnd(marks), kind)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		d, err := u.try(name)
		if name == "none" {
			if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "may not read the keys") {
				t.Errorf("%s: Open: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.Do(ctx, "job", func(context.Context) error { return nil }); err != nil {
			t.Errorf("%s: Do: %v", name, err)
		}
		findings, err := c.Check(ctx)
		said := fmt.Sprint(err)
		for _, f := range findings {
			if f.Topic == "once" {
				said = fmt.Sprint(f.Level, f.Detail, f.Advice)
			}
		}
		_, once := c.Once(ctx, name, time.Unix(1800000000, 0), func(context.Context) error { return nil })
		t.Logf("%s: Check: %s; Once: %v", name, said, once)
		var failed *holdfast.StoreError
		switch {
		case name == "all" && (once != nil || !strings.Contains(said, "can be read")):
			t.Errorf("%s: Check: %s; Once: %v", name, said, once)
		case name != "all" && (!errors.As(once, &failed) || !failed.Refused() || !strings.Contains(said, marks)):
			t.Errorf("%s: Check: %s; Once: %v", name, said, once)
		}
	}
}
