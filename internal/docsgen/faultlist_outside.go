package main

// outsideFaults are the faults of the surroundings of a lock: its neighbours at
// the store, the machine, and its configuration.
var outsideFaults = family{title: "Neighbours, load and configuration", faults: []fault{
	{number: 105, what: "The store is silent for longer than a lease, while a client waits.", on: "core stores"},
	{number: 106, what: "The store is slow for long, or the machine is busy.", on: "core stores"},
	{number: 107, what: "The store refuses for a while, and then does not.", on: "core command stores"},
	{number: 108, what: "More lanes to the store are silent than requests may be in flight.", on: "core", elsewhere: oneCore},
	{number: 109, what: "One client has leases of very different lengths.", on: "core", elsewhere: oneCore},
	{number: 110, what: "Options are combined that do not fit each other, or have extreme values.", on: "core", elsewhere: oneCore},
	{number: 111, what: "A callback calls the client that called it.", on: "core", elsewhere: oneCore},
	{number: 112, what: "Several locks are taken together, the store is silent, and the caller gives up.", on: "core command", elsewhere: oneCore},
	{number: 113, what: "Only the release finds that the lock was lost.", on: "core", elsewhere: oneCore},
	{number: 114, what: "A user lacks a right, at the opening or from some time on.", on: "redis sentinel cluster etcd postgres mysql zookeeper",
		elsewhere: "memory and SQLite have no users, and RedLock asks of each node what one Redis asks."},
	{number: 115, what: "An open connection goes silent, while new ones are served.", on: "servers",
		elsewhere: "memory and SQLite have no connections."},
	{number: 116, what: "A counter is idle for long, and the clock is set back.", on: "memory sqlite redis sentinel cluster redlock postgres mysql",
		elsewhere: "tokens of etcd and ZooKeeper come from no clock."},
	{number: 117, what: "Records that one user left behind slow the others down.", on: "sqlite redis redlock postgres mysql",
		elsewhere: "Sentinel and Cluster keep what one Redis keeps, and the others no tombstones in the way of their requests."},
	{number: 118, what: "A service runs for ten hours.", on: "redis",
		elsewhere: "what a driver keeps by ticket is Redis' alone; the core's own maps go with their names."},
	{number: 119, what: "A part of the store is restored that is older than the rest.", on: "redlock",
		elsewhere: "other stores have no parts that can be restored one by one; the stock has tests of its own."},
	{number: 120, what: "A record outlives the search for it.", on: "core",
		elsewhere: "the records are those of the stock, which is above every store.", untested: map[string]string{
			"core": "the stock has such records, and tests of its own; locks have none.",
		}},
	{number: 121, what: "The store is far away, and one client has very many places.", on: "servers",
		elsewhere: "memory and SQLite are on the same machine."},
	{number: 122, what: "Another program locks one row for a long time.", on: "postgres mysql", elsewhere: "other stores have no locks of rows."},
	{number: 123, what: "A server accepts the connection, and does not answer, when the store is opened.", on: "command servers",
		elsewhere: "memory and SQLite have no connections."},
	{number: 124, what: "The connection for pushes cannot be opened.", on: "core stores"},
	{number: 125, what: "A notification cannot be written.", on: "postgres mysql", elsewhere: "other stores write nothing at a grant that could fail by itself."},
	{number: 126, what: "A session, or the server's version, has another mode than expected.", on: "postgres mysql",
		elsewhere: "other stores have no modes of sessions."},
	{number: 127, what: "The machine has another boot id than before, or a deadline was written by another clock.", on: "memory sqlite redis sentinel cluster redlock postgres mysql",
		elsewhere: "etcd and ZooKeeper keep no deadlines of their own.", untested: map[string]string{
			"redis": ownClock, "sentinel": ownClock, "cluster": ownClock,
		}},
	{number: 128, what: "One file has two names.", on: "sqlite", elsewhere: oneMachine},
	{number: 129, what: "Another user made the store's files first.", on: "sqlite", elsewhere: oneMachine},
	{number: 130, what: "Other programs keep much data beside the locks, or very many rows are idle.", on: "sqlite redis etcd postgres mysql zookeeper",
		elsewhere: "memory has nothing beside its locks; Sentinel, Cluster and RedLock keep what one Redis keeps."},
	{number: 131, what: "Another program's locks are in our queue.", on: "redis etcd zookeeper",
		elsewhere: "only with Redisson, etcd's `concurrency` and Curator can names be shared; Sentinel and Cluster have the layout of Redis."},
	{number: 132, what: "A default is outside the store's limits.", on: "core command", elsewhere: oneCore},
	{number: 133, what: "A flag, a variable or a part of a URL is present and empty.", on: "core command",
		elsewhere: "package anylock judges URLs before any store does."},
	{number: 134, what: "A program closes its client while work runs under a lock.", on: "core stores"},
	{number: 135, what: "The store starts after the program.", on: "core",
		elsewhere: "package anylock repeats the opening, whatever the store."},
	{number: 136, what: "A program closes its client while the store is silent.", on: "core command stores"},
}}

// ownClock is the reason why Redis has no test of deadlines of an earlier
// clock.
const ownClock = "it fails there. Keys expire by the server's own clock: after that was set back, dead clients block a queue until the clock has caught up (A2)."

// oneMachine is the reason why only the store of one machine depends on the
// machine.
const oneMachine = "no other store keeps its locks in a file of the machine."
