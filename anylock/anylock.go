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
//	holdfast://host[,host…]       lock servers (holdfast serve) over one store; token_file=FILE
//	holdfasts://…                 the same over TLS
//	holdfast-unix:/path           a lock server's socket
//
// It links the client libraries of all stores. A program that knows its store
// takes that store's package instead, and holdfast.New.
package anylock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/lockclient"
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
	form   string // the form of its URLs, for people
	local  bool   // its URLs name no server, and so hold no password
	open   func(ctx context.Context, url string) (holdfast.Driver, error)
}

// stores is the table. Each store parses the rest of its URLs after the scheme.
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
	{"holdfast", "holdfast://HOST[:PORT][,HOST...]", false, open(lockclient.Open)},
	{"holdfasts", "holdfasts://... (lock servers over TLS)", false, open(lockclient.Open)},
	{"holdfast-unix", "holdfast-unix:... (the /PATH of a lock server's socket)", true, open(lockclient.Open)},
}

// open adapts the function of a store's package to a row.
func open[D holdfast.Driver](f func(context.Context, string) (D, error)) func(context.Context, string) (holdfast.Driver, error) {
	return func(ctx context.Context, url string) (holdfast.Driver, error) {
		d, err := f(ctx, url)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
}

// Schemes returns the schemes of URLs that Open knows.
func Schemes() []string {
	names := make([]string, len(stores))
	for i, s := range stores {
		names[i] = s.scheme
	}
	return names
}

// Forms returns the form of the URLs of each scheme, in the order of Schemes.
func Forms() []string {
	forms := make([]string, len(stores))
	for i, s := range stores {
		forms[i] = s.form
	}
	return forms
}

func openMemory(_ context.Context, url string) (holdfast.Driver, error) {
	name := strings.TrimPrefix(url, "memory:")
	if strings.ContainsAny(name, "/?#") {
		return nil, errors.New("memlock: the URL is memory: or memory:NAME; it has no host, path or options")
	}
	for _, c := range name {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("._-", c) {
			return nil, fmt.Errorf("memlock: the name in the URL has the character %q: write memory:NAME with letters, digits, dots, hyphens and underscores", c)
		}
	}
	return memlock.Open(name), nil
}
