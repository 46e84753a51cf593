package main

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
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
	{"NATS JetStream", natsTraits},
	{"PostgreSQL", new(pglock.Driver).Traits()},
	{"MySQL, MariaDB", new(mysqllock.Driver).Traits()},
	{"ZooKeeper", new(zklock.Driver).Traits()},
}

// natsTraits are those of package natslock, which is a module of its own: this one
// does not require the client of NATS. A test of natslock compares them with the
// table, for a bucket in files on one server.
var natsTraits = driver.Traits{
	Scheme:          "nats",
	Fencing:         true,
	Shared:          true,
	Owner:           true,
	Fair:            true,
	Push:            true,
	Marks:           true,
	SurvivesRestart: true,
	MinTTL:          100 * time.Millisecond,
	MaxTTL:          10 * 365 * 24 * time.Hour,
}
