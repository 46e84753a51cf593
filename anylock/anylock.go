// Package anylock opens a store by its URL, so that which store a program uses
// is a matter of configuration:
//
//	memory:[NAME]                 this process; those that open one name share it
//	sqlite:PATH                   the processes of this machine, see sqlitelock.ParseURL
//	redis://[user:password@]host  Redis or Valkey, see redislock.Open
//	rediss://…                    the same over TLS
//	redis-sentinel://host,…/name  the primary of Redis Sentinels, see redislock.OpenSentinel
//	rediss-sentinel://…           the same over TLS
//	redis-cluster://host,host…    Redis Cluster, see redislock.OpenCluster
//	rediss-cluster://…            the same over TLS
//	redlock://host,host,host      a majority of independent Redis servers, see package redlock
//	redlocks://…                  the same over TLS
//	etcd://host[,host…]           etcd, see etcdlock.Open
//	etcds://…                     the same over TLS
//	zk://host[,host…][/chroot]    ZooKeeper, see zklock.Open
//	zks://…                       the same over TLS
//	postgres://host/database      PostgreSQL, see pglock.Open; also postgresql://
//	mysql://host/database         MySQL, see mysqllock.Open
//	mariadb://host/database       MariaDB, the same
//
// It links the client libraries of all stores. A program that knows its store
// takes that store's package instead, and holdfast.New.
package anylock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/mysqllock"
	"github.com/holdfast-go/holdfast/pglock"
	"github.com/holdfast-go/holdfast/redislock"
	"github.com/holdfast-go/holdfast/sqlitelock"
	"github.com/holdfast-go/holdfast/zklock"
)

// store is one row of the table of schemes.
type store struct {
	scheme string
	form   string // what its URLs look like, for people
	local  bool   // its URLs name no server, and so hold no password
	open   func(ctx context.Context, url string) (driver.Driver, error)
}

// stores is the table. What a URL means after its scheme is the store's own
// business.
var stores = []store{
	{"memory", "memory:[NAME]", true, openMemory},
	{"sqlite", "sqlite:PATH", true, open(sqlitelock.OpenURL)},
	{"redis", "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]", false, open(redislock.Open)},
	{"rediss", "rediss://... (Redis over TLS)", false, open(redislock.Open)},
	{"redis-sentinel", "redis-sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST...]/NAME", false, open(redislock.OpenSentinel)},
	{"rediss-sentinel", "rediss-sentinel://... (Sentinels and Redis over TLS)", false, open(redislock.OpenSentinel)},
	{"redis-cluster", "redis-cluster://[USER:PASSWORD@]HOST[:PORT][,HOST...]", false, open(redislock.OpenCluster)},
	{"rediss-cluster", "rediss-cluster://... (Redis Cluster over TLS)", false, open(redislock.OpenCluster)},
	{"redlock", "redlock://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT],HOST[:PORT]...[/DATABASE]", false, openRedlock},
	{"redlocks", "redlocks://... (a majority of Redis servers over TLS)", false, openRedlock},
	{"etcd", "etcd://[USER:PASSWORD@]HOST[:PORT][,HOST...]", false, open(etcdlock.Open)},
	{"etcds", "etcds://... (etcd over TLS)", false, open(etcdlock.Open)},
	{"zk", "zk://[USER:PASSWORD@]HOST[:PORT][,HOST...][/CHROOT]", false, open(zklock.Open)},
	{"zks", "zks://... (ZooKeeper over TLS)", false, open(zklock.Open)},
	{"postgres", "postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE", false, open(pglock.Open)},
	{"postgresql", "postgresql://... (the same)", false, open(pglock.Open)},
	{"mysql", "mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE", false, open(mysqllock.Open)},
	{"mariadb", "mariadb://... (the same)", false, open(mysqllock.Open)},
}

// open turns the function of a store's package into that of a row.
func open[D driver.Driver](f func(context.Context, string) (D, error)) func(context.Context, string) (driver.Driver, error) {
	return func(ctx context.Context, url string) (driver.Driver, error) {
		d, err := f(ctx, url)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}

// Open returns a client of the store at a URL. It connects, and blocks until
// the store has answered or ctx has ended.
//
// The error says at once what is wrong: with the URL or one of its options,
// with an option of the client, or with the store, which is then an error with
// a class (see driver.ClassOf). No error contains a password, nor the part of a
// URL in which one might be.
func Open(ctx context.Context, url string, opts ...holdfast.Option) (*holdfast.Client, error) {
	d, err := Driver(ctx, url)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(d, opts...)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return c, nil
}

// Driver is Open for those who need the driver itself: to wrap it, or to make
// one driver of several.
func Driver(ctx context.Context, url string) (driver.Driver, error) {
	s, url, err := find(url)
	if err != nil {
		return nil, err
	}
	d, err := s.open(ctx, url)
	if err != nil {
		return nil, scrub(err, url)
	}
	return d, nil
}

// Schemes returns the schemes of URLs that Open knows.
func Schemes() []string {
	names := make([]string, len(stores))
	for i, s := range stores {
		names[i] = s.scheme
	}
	return names
}

// Forms returns what the URLs of each scheme look like, in the order of
// Schemes.
func Forms() []string {
	forms := make([]string, len(stores))
	for i, s := range stores {
		forms[i] = s.form
	}
	return forms
}

// find returns the row of a URL, and the URL with its scheme in lower case.
func find(url string) (*store, string, error) {
	scheme, rest, ok := cutScheme(url)
	if !ok {
		return nil, "", fmt.Errorf("anylock: a store is given as a URL; there are %s", list())
	}
	for i := range stores {
		if s := &stores[i]; s.scheme == scheme {
			return s, scheme + ":" + rest, nil
		}
	}
	return nil, "", fmt.Errorf("anylock: unknown scheme %s; there are %s", scheme, list())
}

func list() string {
	forms := Forms()
	last := len(forms) - 1
	if last == 0 {
		return forms[0]
	}
	return strings.Join(forms[:last], ", ") + " and " + forms[last]
}

// maxScheme keeps what is no scheme, and perhaps a password, out of messages.
const maxScheme = 20

// cutScheme splits a URL at its first colon. A scheme begins with a letter and
// goes on with letters, digits, '+', '-' and '.'.
func cutScheme(url string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(url, ":")
	if !ok || scheme == "" || len(scheme) > maxScheme {
		return "", "", false
	}
	scheme = strings.ToLower(scheme)
	for i, c := range scheme {
		if c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.') {
			continue
		}
		return "", "", false
	}
	return scheme, rest, true
}

func openMemory(_ context.Context, url string) (driver.Driver, error) {
	name := strings.TrimPrefix(url, "memory:")
	if strings.ContainsAny(name, "/?#") {
		return nil, errors.New("memlock: the URL is memory: or memory:NAME; it has no host, path or options")
	}
	return memlock.Open(name), nil
}
