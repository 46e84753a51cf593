package main

import (
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/mysqllock"
	"github.com/holdfast-go/holdfast/pglock"
	"github.com/holdfast-go/holdfast/redislock"
	"github.com/holdfast-go/holdfast/redlock"
	"github.com/holdfast-go/holdfast/sqlitelock"
	"github.com/holdfast-go/holdfast/zklock"
)

// stores are the columns of the table, in the order of their needs, the
// smallest first. Traits are data: a driver that was never opened has them,
// too.
var stores = []store{
	{"memory", new(memlock.Driver).Traits()},
	{"SQLite", new(sqlitelock.Driver).Traits()},
	{"Redis, Valkey", new(redislock.Driver).Traits()},
	{"Redis Sentinel", new(redislock.Sentinel).Traits()},
	{"Redis Cluster", new(redislock.Cluster).Traits()},
	{"RedLock", new(redlock.Driver).Traits()},
	{"etcd", new(etcdlock.Driver).Traits()},
	{"PostgreSQL", new(pglock.Driver).Traits()},
	{"MySQL, MariaDB", new(mysqllock.Driver).Traits()},
	{"ZooKeeper", new(zklock.Driver).Traits()},
}
