package main

var etcdFaults = family{title: "etcd", elsewhere: "These are faults of etcd's leases, watches and members.", faults: []fault{
	{number: 68, what: "The lease of a waiter ends, and then its turn comes.", on: "etcd"},
	{number: 69, what: "A lease is revoked, or a key deleted, by an operator.", on: "etcd"},
	{number: 70, what: "History is thrown away under a watch.", on: "etcd"},
	{number: 71, what: "The server loses an event.", on: "etcd"},
	{number: 72, what: "The leader is killed, or stands still.", on: "etcd"},
	{number: 73, what: "The member that a client speaks to is cut off.", on: "etcd"},
	{number: 74, what: "A client is cut off, and comes back.", on: "etcd"},
	{number: 75, what: "The outcome of a transaction is not known.", on: "etcd"},
	{number: 76, what: "The store is full.", on: "etcd"},
	{number: 77, what: "A user's authentication token expires while it holds a lock.", on: "etcd"},
	{number: 78, what: "The store is restored from an old snapshot.", on: "etcd"},
	{number: 79, what: "One of several users of a session closes it.", on: "etcd"},
	{number: 80, what: "A TTL is no whole number of seconds, or less than the server grants.", on: "etcd"},
	{number: 81, what: "A server revokes a lease that has not expired.", on: "etcd"},
}}

var zookeeperFaults = family{title: "ZooKeeper", elsewhere: "These are faults of ZooKeeper's sessions and nodes.", faults: []fault{
	{number: 82, what: "The connection is lost while a node is made.", on: "zookeeper"},
	{number: 83, what: "The node that is found belongs to a session that is about to end.", on: "zookeeper"},
	{number: 84, what: "The follower that is asked lags behind.", on: "zookeeper"},
	{number: 85, what: "A waiter's own node is deleted.", on: "zookeeper"},
	{number: 86, what: "The holder is cut off for longer than its session.", on: "zookeeper"},
	{number: 87, what: "The session ends while it waits, and while it releases.", on: "zookeeper"},
	{number: 88, what: "A request fails anywhere on the way to a wait.", on: "zookeeper"},
	{number: 89, what: "Sequence numbers pass their end, or begin anew.", on: "zookeeper"},
	{number: 90, what: "A chroot, foreign nodes, another session time-out than requested, a very long queue.", on: "zookeeper"},
}}

var sqlFaults = family{title: "SQL", elsewhere: "These are faults of SQL servers and their transactions.", faults: []fault{
	{number: 91, what: "Rows are committed in another order than they were numbered in.", on: "sqlite postgres mysql"},
	{number: 92, what: "A transaction reads a snapshot of the past.", on: "postgres mysql"},
	{number: 93, what: "The server ends a transaction: deadlock, lock time-out, serialization failure.", on: "postgres mysql"},
	{number: 94, what: "A statement waits for longer than a lease, and then succeeds.", on: "postgres mysql"},
	{number: 95, what: "The server restarts, and crashes.", on: "postgres mysql"},
	{number: 96, what: "The server has become read-only, or another has taken its place.", on: "postgres mysql"},
	{number: 97, what: "The server ends connections.", on: "postgres mysql"},
	{number: 98, what: "A client stands still in the middle of a transaction.", on: "postgres mysql"},
	{number: 99, what: "A pooler or a pool gives each transaction another connection.", on: "postgres mysql"},
	{number: 100, what: "A notification is lost.", on: "postgres mysql"},
	{number: 101, what: "Generated ids begin anew, or are not in order.", on: "sqlite postgres mysql"},
	{number: 102, what: "Several servers accept writes.", on: "postgres mysql", untested: map[string]string{
		"postgres": "PostgreSQL has one primary; the products that make it several are not supported.",
	}},
	{number: 103, what: "`GET_LOCK` answers with neither yes nor no.", on: "mysql"},
	{number: 104, what: "SQLite: the file is busy, on a network share, damaged or full; a writer is killed.", on: "sqlite"},
}}
