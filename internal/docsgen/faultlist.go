package main

// families are the faults in the order of their numbers, which never change: a
// new fault is appended.
var families = []family{
	messages, pauses, redisFaults, majorityFaults, waiting, use, etcdFaults, zookeeperFaults, sqlFaults,
	outsideFaults,
}

// oneCore is the reason why a decision of the core has no test on each store.
const oneCore = "the core decides it, and is the same above every store."

var messages = family{title: "Messages", faults: []fault{
	{number: 1, what: "The request for a lock is carried out, and its answer is lost.", on: "core stores"},
	{number: 2, what: "A release is carried out, and its answer is lost.", on: "core stores"},
	{number: 3, what: "The request for a lock arrives after the release of the same lock.", on: "core stores"},
	{number: 4, what: "The client library sends a request a second time that was carried out already.", on: "core stores"},
	{number: 5, what: "The caller gives up at any instant of a request.", on: "core stores"},
	{number: 6, what: "The caller has given up before anything was sent.", on: "core stores"},
	{number: 7, what: "The caller gives up, or unlocks, while the store is silent.", on: "core stores"},
	{number: 8, what: "A renewal is under way when the lock is released.", on: "core stores"},
	{number: 9, what: "A renewal finds the lock gone, or held by another meanwhile.", on: "core stores"},
	{number: 10, what: "A renewal fails, and nothing says that the lock is lost.", on: "core stores"},
	{number: 11, what: "The store's answer is cut short, garbled or far too long.", on: "servers",
		elsewhere: "memory has no answers to garble, and what garbles those of SQLite is a damaged file (F104)."},
}}

var pauses = family{title: "Time and pauses", faults: []fault{
	{number: 12, what: "The holder is paused for longer than its lease, and goes on.", on: "core command fence stores"},
	{number: 13, what: "Other processes, or the garbage collector, take the processor.", on: "core", elsewhere: oneCore},
	{number: 14, what: "The answer to a renewal is late, and a lease counted from the answer would be relied on for too long.", on: "core stores"},
	{number: 15, what: "A grant arrives when its lease has ended.", on: "core stores"},
	{number: 16, what: "The machine is suspended, and its clock stands still meanwhile.", on: "core", elsewhere: oneCore},
	{number: 17, what: "The wall clock of a client is set.", on: "core sqlite",
		elsewhere: "nothing that is sent to another store has a client's time in it."},
	{number: 18, what: "The store's clock is set forward.", on: "stores"},
	{number: 19, what: "The store's clock is set back.", on: "core stores"},
	{number: 20, what: "The store loses its data while its clock is behind.", on: "core fence memory sqlite redis sentinel cluster redlock postgres mysql",
		elsewhere: "tokens of etcd and ZooKeeper come from no clock; what becomes of them when data are lost is F78."},
	{number: 21, what: "The store is slow, or stands still for less than a lease.", on: "core stores"},
	{number: 22, what: "One of many renewals hangs.", on: "core cluster redlock",
		elsewhere: "the core sends on several lanes at once; only where several servers keep locks can one of them hang alone."},
	{number: 23, what: "Ten thousand locks are due after the store stood still.", on: "core", elsewhere: oneCore},
	{number: 24, what: "The work hangs, and the process lives on and renews.", on: "core command", elsewhere: oneCore},
	{number: 25, what: "Daylight saving time begins, or a session's time zone is set.", on: "postgres mysql",
		elsewhere: "no other store has times with a zone."},
}}

var redisFaults = family{title: "Redis", elsewhere: "Servers of Redis and Valkey do this, and no others.", faults: []fault{
	{number: 26, what: "The server dies and comes back without its data.", on: "core memory sqlite redis sentinel cluster redlock postgres mysql"},
	{number: 27, what: "The server comes back with data of long ago.", on: "core memory sqlite redis cluster redlock postgres mysql"},
	{number: 28, what: "A replica that lags behind is promoted.", on: "redis sentinel cluster"},
	{number: 29, what: "A replaced primary still serves the clients that reach it.", on: "redis sentinel"},
	{number: 30, what: "The server answers READONLY, LOADING, MASTERDOWN, MISCONF or BUSY.", on: "core redis"},
	{number: 31, what: "A slot moves: MOVED, ASK, TRYAGAIN, CLUSTERDOWN.", on: "cluster"},
	{number: 32, what: "The server has forgotten its scripts.", on: "redis"},
	{number: 33, what: "The server evicts keys when memory runs out.", on: "redis"},
	{number: 34, what: "The server is out of memory and refuses writes.", on: "redis"},
	{number: 35, what: "The server accepts no more connections, or has another password.", on: "redis command"},
	{number: 36, what: "The server closes connections, those of waiters too.", on: "core redis sentinel cluster"},
	{number: 37, what: "An operator deletes, renames or replaces keys.", on: "core memory sqlite redis sentinel cluster redlock etcd postgres mysql zookeeper"},
	{number: 38, what: "A token is beyond what a double or a Lua number holds exactly.", on: "core fence"},
	{number: 39, what: "The counter of an idle lock expires, or never does.", on: "core redis"},
	{number: 40, what: "Reads are sent to replicas.", on: "redis"},
}}

var majorityFaults = family{title: "Majorities", elsewhere: "Only RedLock has a majority of independent servers.", faults: []fault{
	{number: 41, what: "A client gets a minority of the votes, or two share them.", on: "redlock"},
	{number: 42, what: "A server that voted restarts without its data.", on: "redlock"},
	{number: 43, what: "Votes are lost one by one.", on: "redlock"},
	{number: 44, what: "Servers that should be independent are one.", on: "redlock"},
	{number: 45, what: "The clock of one server that voted is set.", on: "redlock"},
}}

var waiting = family{title: "Waiting and closing", faults: []fault{
	{number: 46, what: "The lock is released between the request and the wait.", on: "core stores"},
	{number: 47, what: "The wait ends at the instant of the grant.", on: "core stores"},
	{number: 48, what: "The first in line is killed.", on: "core stores"},
	{number: 49, what: "The first in line is paused, and is granted the lock meanwhile.", on: "core stores"},
	{number: 50, what: "A wake-up is lost, doubled, late, or of long ago.", on: "core stores"},
	{number: 51, what: "A thousand clients wait for one lock.", on: "core stores"},
	{number: 52, what: "A lock is handed on within a process when its lease has ended.", on: "core", elsewhere: oneCore},
	{number: 53, what: "One process, or readers, keep everybody else out.", on: "core memory sqlite redis sentinel cluster etcd postgres mysql zookeeper",
		elsewhere: "RedLock promises no order."},
	{number: 54, what: "The client is closed while it waits and holds, twice, or from a callback.", on: "core stores"},
	{number: 55, what: "A callback locks, unlocks, closes, blocks or panics.", on: "core", elsewhere: oneCore},
	{number: 56, what: "Two handles share one session or connection.", on: "stores"},
}}

var use = family{title: "Use and input", faults: []fault{
	{number: 57, what: "A client unlocks a lock that it does not hold, or twice, or twice at once.", on: "core stores"},
	{number: 58, what: "A client unlocks late, when another holds the lock.", on: "core stores"},
	{number: 59, what: "A holder locks again, and unlocks more or less often.", on: "core stores"},
	{number: 60, what: "A TTL is zero, negative, tiny or huge.", on: "core stores"},
	{number: 61, what: "A name is empty, long, binary, or looks like a pattern, a path or a key.", on: "core stores"},
	{number: 62, what: "One name is the beginning of another: `a` and `a/b`.", on: "core stores"},
	{number: 63, what: "Two programs use one name as different kinds of lock.", on: "core memory sqlite redis sentinel cluster etcd postgres mysql zookeeper",
		elsewhere: "RedLock has mutexes alone."},
	{number: 64, what: "One client holds ten thousand locks, or a hundred thousand wait.", on: "core stores"},
	{number: 65, what: "Several locks are taken together, in different orders.", on: "core stores"},
	{number: 66, what: "Programs with another layout, prefix, database or version use the same store.", on: "core sqlite redis sentinel cluster etcd postgres mysql zookeeper",
		elsewhere: "memory outlives no program, and each server of RedLock has the layout of Redis."},
	{number: 67, what: "The counter of tokens is at its end.", on: "core stores"},
}}
